"""The kinds in other languages than English, easy and hard. Written for this project from scratch."""

from __future__ import annotations

from prior_kinds import KINDS, NAME, easy, n
from prior_kinds_craft import hard

easy(
    "de_capital",
    "Was ist die Hauptstadt von {c}?",
    "Hauptstadt von {c}?",
    "Wie heißt die Hauptstadt von {c}?",
    lang="de",
    c=["Norwegen", "Peru", "Kenia", "Polen", "Japan"],
)
easy(
    "de_translate",
    "Übersetze ins Englische: {p}",
    "Was heißt '{p}' auf Englisch?",
    "Wie sagt man {p} auf Englisch?",
    lang="de",
    p=["guten Abend", "das Haus ist groß", "ich habe Hunger", "bis morgen"],
)
easy(
    "fr_capital",
    "Quelle est la capitale de {c} ?",
    "Capitale de {c} ?",
    "Dis-moi la capitale de {c}.",
    lang="fr",
    c=["la Norvège", "la Pologne", "l'Égypte", "la Grèce"],
)
easy(
    "fr_define",
    "Que signifie le mot {w} ?",
    "Donne la définition de {w}.",
    "C'est quoi, {w} ?",
    lang="fr",
    w=["rivière", "courage", "inflation", "verbe", "boussole"],
)
easy(
    "es_capital",
    "¿Cuál es la capital de {c}?",
    "Capital de {c}",
    "Dime cuál es la capital de {c}.",
    lang="es",
    c=["Noruega", "Perú", "Kenia", "Grecia"],
)
easy("es_greeting", "Hola", "Buenos días, ¿qué tal?", "Hola, ¿cómo estás?", lang="es")
easy(
    "zh_fact",
    "{c}的首都是哪里？",
    "请问{c}的首都是什么？",
    "{c}首都",
    "告诉我{c}的首都",
    lang="zh",
    c=["法国", "日本", "挪威", "埃及", "秘鲁"],
)
easy(
    "zh_translate",
    "把“{p}”翻译成英文。",
    "“{p}”用英语怎么说？",
    "翻译：{p}",
    lang="zh",
    p=["早上好", "我饿了", "明天见", "今天下雨"],
)
easy("zh_greeting", "你好", "你好！", "早上好，最近好吗？", lang="zh")
easy(
    "ru_capital",
    "Какая столица у страны {c}?",
    "Столица страны {c}?",
    "Назови столицу страны {c}.",
    lang="ru",
    c=["Норвегия", "Перу", "Египет", "Япония"],
)
hard(
    "de_prove",
    "Beweise, dass {c}.",
    "Zeige Schritt für Schritt, dass {c}.",
    "Warum gilt, dass {c}? Begründe genau.",
    lang="de",
    c=[
        "die Wurzel aus 2 irrational ist",
        "es unendlich viele Primzahlen gibt",
        "die Summe der ersten n ungeraden Zahlen n Quadrat ist",
    ],
)
hard(
    "de_word",
    "{p} kauft {a} Hefte zu je {b} Cent und {c} Stifte zu je {d} Cent. Wie viel bekommt er auf {e} Euro zurück?",
    "{a} Hefte kosten je {b} Cent, {c} Stifte je {d} Cent. {p} zahlt mit {e} Euro. Berechne das Rückgeld.",
    "Wie viel Geld bleibt {p} von {e} Euro, wenn {a} Hefte ({b} Cent) und {c} Stifte ({d} Cent) gekauft werden?",
    lang="de",
    p=NAME,
    a=n(3, 12),
    b=n(40, 99),
    c=n(2, 9),
    d=n(30, 150),
    e=n(20, 50),
)
hard(
    "de_plan",
    "Plane eine Woche für {k} Personen: höchstens {a} Euro, genau zwei Ruhetage, niemand fährt allein, und"
    " mindestens drei Museen.",
    "Entwirf einen Plan für {k} Leute und 7 Tage. Es müssen drei Museen dabei sein, genau zwei"
    " Tage ohne Programm, maximal {a} Euro.",
    "Wie können {k} Personen eine Woche verbringen, ohne mehr als {a} Euro"
    " auszugeben, mit drei Museen und genau zwei freien Tagen?",
    lang="de",
    k=n(2, 6),
    a=n(200, 900),
)
hard(
    "fr_prove",
    "Démontre que {c}.",
    "Prouvez étape par étape que {c}.",
    "Pourquoi est-il vrai que {c} ? Justifie.",
    lang="fr",
    c=[
        "la racine de 2 est irrationnelle",
        "il existe une infinité de nombres premiers",
        "la somme des angles d'un triangle vaut 180 degrés",
    ],
)
hard(
    "fr_word",
    "{p} achète {a} cahiers à {b} euros et {c} stylos à {d} euros, avec une remise de {e} %. Combien paie-t-elle"
    " au total ?",
    "{a} cahiers coûtent {b} euros chacun, {c} stylos {d} euros chacun ; la remise est de {e} %. Calcule le"
    " prix total pour {p}.",
    "Quel est le montant final pour {p} : {a} cahiers à {b} euros, {c} stylos à {d} euros, moins {e} % ?",
    lang="fr",
    p=NAME,
    a=n(3, 12),
    b=n(2, 5),
    c=n(2, 9),
    d=n(1, 4),
    e=n(5, 30),
)
hard(
    "es_prove",
    "Demuestra que {c}.",
    "Demuestra paso a paso que {c}.",
    "¿Por qué {c}? Justifica cada paso.",
    lang="es",
    c=["la raíz de 2 es irracional", "hay infinitos números primos", "n al cubo menos n es divisible por 6"],
)
hard(
    "es_compare",
    "Compara {p} y analiza sus ventajas y desventajas.",
    "Analiza las diferencias entre {p} con una tabla de criterios.",
    "¿Qué ventajas y desventajas tienen {p}? Evalúa ambas opciones.",
    lang="es",
    p=["alquilar y comprar", "el tren y el avión", "la energía solar y la eólica"],
)
hard(
    "zh_prove",
    "证明{c}。",
    "请一步一步证明{c}。",
    "为什么{c}？请严格论证。",
    lang="zh",
    c=["根号2是无理数", "素数有无穷多个", "前n个奇数之和等于n的平方"],
)
hard(
    "zh_word",
    "{p}买了{a}本书，每本{b}元，又买了{c}支笔，每支{d}元，付了{e}元，应该找回多少元？",
    "一本书{b}元，一支笔{d}元。{p}买{a}本书和{c}支笔，给了{e}元。请计算找零。",
    "{p}带了{e}元，买{a}本书（每本{b}元）和{c}支笔（每支{d}元），还剩多少元？",
    lang="zh",
    p=["小明", "小红", "老王"],
    a=n(2, 9),
    b=n(12, 35),
    c=n(3, 12),
    d=n(2, 8),
    e=n(300, 500),
)
hard(
    "zh_design",
    "设计一个支持{a}万用户的{s}，并分析优缺点。",
    "请制定{s}的实现方案，必须支持{a}万用户，不能有单点故障。",
    "如何实现{s}？至少支持{a}万用户，请详细说明架构。",
    lang="zh",
    a=n(10, 900),
    s=["聊天系统", "订单系统", "短链接服务", "消息队列"],
)
hard(
    "ru_prove",
    "Докажите, что {c}.",
    "Докажите по шагам, что {c}.",
    "Почему верно, что {c}? Обоснуйте.",
    lang="ru",
    c=["корень из 2 иррационален", "простых чисел бесконечно много", "сумма углов треугольника равна 180 градусам"],
)

__all__ = ["KINDS"]
