"""Cue words of the features, in English, German, French, Spanish and Chinese. Plain words, lower case.

A cue is a hint and no more: it is counted, never decisive alone. Words with inflections are written out, because
a lookup in one dictionary is what keeps a decision under a millisecond.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GROUPS: dict[str, str] = {
    "cue_reason": "prove proof derive derivation justify deduce infer why conclude explain reasoning disprove"
    " show verify contradiction induction beweise beweisen beweis begründe begründung warum weshalb herleiten leite"
    " zeige prouver prouvez démontrer démontrez démontre justifier justifie pourquoi déduire montrer montre demuestra"
    " demostrar demuestre prueba justifica porqué deduce"
    " because argue argues argument arguments reason discuss debate critically counterexample",
    "cue_design": "design plan schedule planning architecture implement implementation optimise optimize optimal"
    " build develop strategy allocate assign arrange itinerary timetable roadmap organise organize budget entwirf"
    " entwerfe plane planen erstelle implementiere optimiere concevoir conçois planifier planifie organise optimiser"
    " élabore diseña planifica organiza implementa optimiza elabora"
    " sketch architect outline scalable prototype draft milestones phases campaign",
    "cue_compare": "compare contrast evaluate analyse analyze analysis trade-offs tradeoffs trade-off tradeoff pros"
    " cons versus vs advantages disadvantages critique assess implications differences vergleiche bewerte analysiere"
    " vorteile nachteile comparer compare comparez analyser analyse avantages inconvénients évalue compara analiza"
    " evalúa ventajas desventajas"
    " weigh weighing opposing recommend alternatives alternative essay thesis",
    "cue_compute": "calculate compute solve simplify integrate differentiate factor probability expected remainder sum"
    " product derivative integral equation percent average total berechne löse wahrscheinlichkeit gleichung summe"
    " calcule calculer résous résoudre probabilité équation somme calcula resuelve probabilidad ecuación suma"
    " cipher caesar encode decode shift reverse weekday calendar digits digit divide divided multiply multiplied",
    "cue_code": "function code algorithm python javascript java rust sql bug debug class method api regex compile"
    " complexity recursion recursive array string thread threads loop database query script program unit-tests tests"
    " funktion programm programmiere fonction programme código función programa algoritmo algorithme algorithmus"
    " service server cache queue distributed latency throughput expression expressions parser pointer pointers"
    " c++ typescript golang kotlin haskell bash linux apis http json yaml docker kubernetes",
    "cue_formal": "theorem lemma integer integers prime primes matrix matrices graph vertices polynomial irrational"
    " rational continuous convergence converges modulo divisible finite infinite sequence triangle axiom set bijection"
    " eigenvalue group ring primzahl primzahlen ganze irrational premier premiers entier entiers primos entero enteros",
    "cue_define": "define definition meaning mean means synonym antonym opposite spell spelling plural abbreviation"
    " bedeutet bedeutung definiere gegenteil mehrzahl signifie définition contraire pluriel significa definición"
    " contrario sinónimo",
    "cue_rewrite": "rewrite rephrase summarise summarize shorten translate translation correct grammar typo paraphrase"
    " uppercase lowercase capitalize capitalise sentence tidy übersetze übersetzen fasse kürze korrigiere umformulieren"
    " traduis traduire traduisez résume corrige reformule traduce traducir resume reescribe",
    "cue_depth": "detailed detail thorough rigorous rigorously in-depth comprehensive formally precisely complete"
    " step-by-step carefully ausführlich gründlich schrittweise détaillé rigoureusement détail detallado rigurosamente"
    " detalle",
    "cue_brief": "briefly brief short quick quickly simple simply one-word kurz knapp bref brièvement simplement breve"
    " brevemente rápido",
    "constraint": "must exactly without only never unless between maximum minimum limit within avoid require requires"
    " required cannot fewer constraint constraints subject satisfy satisfies satisfying either neither except muss"
    " müssen genau ohne höchstens mindestens niemals nicht dürfen darf doit doivent exactement sans seulement jamais"
    " maximum moins debe deben exactamente sin nunca solo máximo mínimo",
    "conditional": "if when suppose assume assuming given whenever otherwise provided wenn falls angenommen gegeben si"
    " supposons sachant suponga supongamos dado cuando",
    "quantifier": "each every all any per both total altogether remaining left rest half twice double triple third jede"
    " jeder jedes alle pro insgesamt übrig hälfte doppelt chaque tous toutes par reste moitié double cada todos todas"
    " por queda quedan mitad doble",
    "comparison": "more less than taller older younger faster slower higher lower earlier later before after larger"
    " smaller heavier next immediately mehr weniger als älter jünger schneller vor nach plus moins que avant après más"
    " menos antes después mayor menor",
    "number_word": "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred"
    " thousand million dozen zwei drei vier fünf sechs sieben acht neun zehn hundert tausend deux trois quatre cinq"
    " sept huit neuf dix cent mille dos tres cuatro cinco seis siete ocho nueve diez cien mil",
    "step": "first second then finally next step steps afterwards lastly subsequently process procedure zuerst dann"
    " danach schließlich schritt schritte d'abord ensuite puis enfin étape étapes primero luego finalmente paso pasos",
    "wh": "who what when where which wer was wann wo welche welcher welches qui quoi quel quelle quels où quand qué"
    " quién cuál dónde cuándo",
    "how": "how wie comment cómo",
    "how_many": "many much cuántos cuántas cuánto cuánta viele combien",
    "negation": "not no none nor don't doesn't isn't can't cannot without nothing nicht kein keine keinen ne pas aucun"
    " aucune ningún ninguna ninguno",
    "table": "table columns column rows matrix criteria headings section sections outline tabelle spalten tableau"
    " colonnes tabla columnas criterios",
}
"""Feature -> its words, separated by blanks."""

PAIRS: dict[str, str] = {
    "constraint": "at least/at most/no more/no fewer/no less/not exceed/may not/up to/only if/no two/au moins/au plus"
    "/al menos/como máximo/kein mehr/so dass/such that",
    "cue_reason": "show that/explain why/how come/for all/there exists/por qué/zeige dass/montre que",
    "cue_depth": "step by/in depth/schritt für/pas à/étape par/paso a/full detail",
    "cue_brief": "one word/one sentence/in short/single word/a word/einem wort/un mot/una palabra",
    "cue_compare": "pros and/trade offs/as opposed/difference between/differences between",
    "comparison": "more than/less than/left of/right of/next to/plus que/más que",
}
"""Feature -> pairs of neighbouring words, separated by slashes."""

UNSPACED: dict[str, str] = {
    "cue_reason": "证明|推导|为什么|论证|解释|推理|證明|為什麼",
    "cue_design": "设计|计划|规划|安排|实现|优化|制定|方案|設計|計劃",
    "cue_compare": "比较|对比|分析|评价|优缺点|利弊|比較",
    "cue_compute": "计算|求解|概率|方程|总和|平均|一共|計算|積分|积分",
    "cue_code": "函数|代码|算法|编程|程序|复杂度|数据库|線程|线程",
    "cue_formal": "定理|整数|素数|质数|矩阵|无理数|三角形|多项式|数列|連續|连续",
    "cue_define": "什么意思|定义|反义词|同义词|是什么|定義",
    "cue_rewrite": "翻译|改写|总结|概括|缩短|改正|翻譯",
    "cue_depth": "详细|逐步|一步一步|严格|完整|詳細",
    "cue_brief": "简短|简单|一句话|一个词|简要",
    "constraint": "必须|恰好|至少|至多|不能|不得|最多|只能|除非|不超过|限制|必須",
    "conditional": "如果|假设|若|已知|当",
    "quantifier": "每|所有|全部|各|剩下|还剩|一半",
    "comparison": "更|多于|少于|大于|小于|之前|之后|比",
    "number_word": "一|二|三|四|五|六|七|八|九|十|百|千|万",
    "step": "首先|然后|接着|最后|步骤|第一|第二|第三|第四",
    "wh": "谁|什么|哪|几点|何时|誰",
    "how": "怎么|如何|怎样",
    "how_many": "多少|几个|几只|几天",
    "negation": "不|没有|无",
    "table": "表格|列出|标准",
}
"""Feature -> texts, separated by bars, for scripts that put no blanks between words."""

COURTESY: frozenset[str] = _words(
    "please thanks thank thx kindly hi hello hey dear greetings question questions following answer answers reply "
    "respond response help assistant ai expert helpful task user below here again advance appreciate appreciated "
    "cheers regards best ability carefully consider read instruction instructions request prompt could "
    "would can you your me my i'd i'm i i've like need want would know tell let let's get so ok okay well just "
    "wondering think about bitte danke hallo frage folgende beantworte antworte mir ihre deine merci bonjour svp "
    "réponds répondez suivante question plaît gracias hola favor pregunta siguiente responde responda lot "
    "bit great awesome"
)
"""Words of politeness and framing. They are left out of every word count, so that a wrapper or a trailing thanks
changes little."""

COURTESY_LINKS: frozenset[str] = _words(
    "a an the and for so to of with have has is are be it this that much many very nice day good all by in on de la le"
    " el vielen herzlichen beaucoup muchas merci für y et und yours truly sincerely from"
)
"""What joins words of politeness in a sentence that has nothing else, as in "Thanks so much for your help"."""

POINTING: frozenset[str] = _words(
    "he she it they them this that these those then one both also so therefore her his their its how explain give show"
    " find compute calculate solve justify dies das er sie es dann combien elle il elles ils ella él ellos"
)
"""A sentence that begins with one of these leans on the sentence before it."""

LINKING: frozenset[str] = _words(
    "with from that this then than what when where which have they their there were your into"
)
"""Longer words that two sentences may share without belonging together."""

SHALLOW_GROUPS: tuple[str, ...] = ("cue_define", "cue_rewrite", "cue_brief")
DEEP_GROUPS: tuple[str, ...] = (
    "cue_reason", "cue_design", "cue_compare", "cue_compute", "cue_code", "cue_formal", "cue_depth", "constraint",
)  # fmt: skip

ABSTRACT_ENDINGS: frozenset[str] = _words(
    "tion sion ment ence ance logy nomy ility ivity ized ised ical ious ness ship ktion heit keit tät ción dad"
)
"""Endings of learned words (last three or four letters): a rule for rarity that needs no word list."""
