"""Good summaries in many languages with the histories they fit, and answers that are none."""

from __future__ import annotations

from helpers_messages import items, says, user

_EN = (
    "The user wants the parser ported to the new grammar, and the old one must stay until all tests pass. "
    "So far 5/17 files are done; `src/a.py` was hard because of the nested quotes. We decided to keep the "
    "tokens as they were, since the editor depends on them. What is still open is whether the cache is "
    "needed."
)
_DE = (
    "Der Nutzer möchte den Parser auf die neue Grammatik umstellen, und der alte soll bleiben, bis alle "
    "Tests "
    "laufen. Bisher sind 5/17 Dateien fertig; `src/a.py` war schwierig wegen der Anführungszeichen. Wir "
    "haben "
    "entschieden, die Token nicht zu ändern, weil der Editor von ihnen abhängt. Offen ist noch der Cache."
)
_FR = (
    "L'utilisateur veut porter l'analyseur vers la nouvelle grammaire, et l'ancien doit rester en place pour "
    "que les tests passent. Pour le moment 5/17 fichiers sont faits ; `src/a.py` était difficile. Nous avons "
    "décidé de garder les jetons, car l'éditeur en dépend. La question du cache est encore ouverte."
)
_ES = (
    "El usuario quiere pasar el analizador a la nueva gramática, y el viejo debe quedar hasta que todas las "
    "pruebas pasen. Por ahora hay 5/17 archivos hechos; `src/a.py` fue muy difícil por las comillas. Se "
    "decidió "
    "no cambiar los tokens porque el editor depende de ellos. Está abierta la cuestión de la caché."
)
_PT = (
    "O usuário quer levar o analisador para a nova gramática, mas o antigo deve ficar até que os testes não "
    "falhem. Por enquanto 5/17 arquivos já estão prontos; `src/a.py` foi muito difícil. Decidimos não "
    "mudar os "
    "tokens, porque o editor depende deles. Ainda está em aberto se o cache é preciso ou não."
)
_RU = (
    "Пользователь хочет перенести парсер на новую грамматику, а старый оставить, пока не пройдут все тесты. "
    "Пока готово 5/17 файлов; `src/a.py` был трудным из-за кавычек. Решили не менять токены, потому что "
    "от них "
    "зависит редактор. Открыт вопрос о кэше."
)
_ZH = (
    "用户希望把解析器迁移到新的语法，旧的解析器要保留到所有测试通过为止。目前完成了 5/17 个文件，`src/a.py` "
    "因为嵌套引号比较难。我们决定不改动标记，因为编辑器依赖它们。还没有决定是否需要缓存。"
)
_JA = (
    "ユーザーはパーサーを新しい文法に移したいと考えており、"
    "すべてのテストが通るまで古いものを残す必要があります。"
    "これまでに 5/17 のファイルが終わりました。`src/a.py` は引用符のせいで難しかったです。"
    "エディターが依存しているので、"
    "トークンは変えないことにしました。キャッシュが必要かどうかは未解決です。"
)
_KO = (
    "사용자는 파서를 새 문법으로 옮기기를 원하며 모든 테스트가 통과할 때까지 이전 파서를 유지해야 "
    "합니다. 지금까지 "
    "5/17 파일이 끝났습니다. `src/a.py` 는 따옴표 때문에 어려웠습니다. 편집기가 의존하므로 토큰은 "
    "바꾸지 않기로 했습니다. "
    "캐시가 필요한지는 아직 정하지 않았습니다."
)
_AR = (
    "يريد المستخدم نقل المحلل إلى القواعد الجديدة مع الإبقاء على القديم حتى تنجح جميع الاختبارات. تم "
    "الانتهاء من "
    "5/17 ملفا حتى الآن وكان `src/a.py` صعبا بسبب علامات الاقتباس. قررنا عدم تغيير الرموز لأن المحرر "
    "يعتمد عليها. "
    "ولا يزال السؤال عن الذاكرة مفتوحا."
)


def _headed(text: str, names: tuple[str, ...]) -> str:
    return "\n\n".join(f"## {name}\n- {text}" for name in names)


GOOD: dict[str, dict[str, str]] = {
    "en": {"plain": _EN, "headed": _headed(_EN, ("Goal", "State and progress", "Last request"))},
    "de": {"plain": _DE, "headed": _headed(_DE, ("Ziel", "Stand", "Letzte Bitte"))},
    "fr": {"plain": _FR, "headed": _headed(_FR, ("But", "État", "Dernière demande"))},
    "es": {"plain": _ES, "headed": _headed(_ES, ("Objetivo", "Estado", "Última petición"))},
    "pt": {"plain": _PT, "headed": _headed(_PT, ("Objetivo", "Estado", "Último pedido"))},
    "ru": {"plain": _RU, "headed": _headed(_RU, ("Цель", "Состояние", "Последний запрос"))},
    "zh": {"plain": _ZH, "headed": _headed(_ZH, ("目标", "状态与进展", "最后的请求"))},
    "ja": {"plain": _JA, "headed": _headed(_JA, ("目標", "状態", "最後の依頼"))},
    "ko": {"plain": _KO, "headed": _headed(_KO, ("목표", "상태", "마지막 요청"))},
    "ar": {"plain": _AR, "headed": _headed(_AR, ("الهدف", "الحالة", "آخر طلب"))},
}

HISTORIES = {
    name: items(
        user(texts["plain"]),
        says(f"1. {texts['plain']}"),
        user(f"2. {texts['plain']}"),
        says("```\nmake test && ./run --all -v\n```"),
    )
    for name, texts in GOOD.items()
}

_LONG_REFUSAL = (
    "Thank you for the detailed conversation. I have read it with care and I understand that you would "
    "like to "
    "have it condensed. However, after reviewing the material, I'm unable to provide a summary of this "
    "conversation, because it may contain material that goes against the guidelines I follow. If you "
    "have other "
    "questions about general topics, such as writing, mathematics or history, I would be more than "
    "happy to talk "
    "about these with you at any time, and to give you as much detail as you like."
)

BAD: dict[str, list[str]] = {
    "empty": ["", " \n\t ", "…", "---", "***\n\n***"],
    "refused": [
        "I can't help", "I'm sorry, but I can't assist with that.", "Sorry, no.", "As an AI, I must decline.",
        "I am unable to summarise this conversation.", "Unfortunately, I cannot do this.",
        "抱歉，我无法总结。",
        "作为一个人工智能，我不能这样做。", "對不起，我無法提供摘要。",
        "申し訳ありませんが、要約できません。",
        "죄송하지만 요약할 수 없습니다.", "Es tut mir leid, das geht nicht.",
        "Ich kann das nicht zusammenfassen.",
        "Je suis désolé, je ne peux pas le faire.", "Lo siento, no puedo ayudar con eso.",
        "Desculpe, não posso.", "Mi dispiace, non posso.", "К сожалению, я не могу помочь.",
        "Het spijt me, dat kan ik niet.", "Przykro mi, nie mogę.", "Maaf, saya tidak bisa.",
        "آسف، لا أستطيع.",
        _LONG_REFUSAL,
        "Please provide the conversation you would like me to summarize.",
        "It looks like there is nothing to summarize here.",
        "Ich habe alles gelesen. Leider geht es nicht: ich kann diese Unterhaltung nicht zusammenfassen.",
        "我已经看过了这些内容，但是很遗憾，我无法对这段对话进行总结。",
    ],
    "skeleton": [
        "## Goal\nNone.\n## Decisions\nNone.", "## 目标\n无\n## 决定\n暂无", "Goal: none\nState: none",
        "## Goal\n\n## State and progress\n\n## Decisions\n",
        "## Goal\n[To be filled in]\n## Decisions\n- TBD",
        "## Goal\n- (not specified)\n## Last request\n- No information available.",
        "## Ziel\nkeine Angaben\n## Entscheidungen\nkeine", "## Цель\nне указано\n## Решения\nнет",
        "## 目標\n該当なし\n## 決定\n特になし", "## 목표\n해당 없음\n## 결정\n없음",
        "Sure, here is the summary of the conversation:\n\n## Goal\n\n## Decisions\n",
        "## Goal\n<goal>\n## Decisions\n{decisions}", "# Summary\n* None identified at this time.",
        "**Goal:** N/A\n**State:** N/A", "## Objectif\nAucune information\n## Décisions\nNéant",
    ],
    "cut": [
        "The work goes on with the parser, and the tests were run on the host that the user had named in the",
        f"{_EN} The next thing to do is to look at the cache and",
        f"{_EN}\n\n```python\ndef main():\n    return",
        "## Goal\nPort the parser, all of it.\n\n## State and progress\nHalf of it is done.\n\n## Decisions",
        f"{_ZH}接下来要检查的是数据库的",
        f"{_DE} Als nächstes wird der Cache geprüft, weil",
        f"{_EN}\n{_EN}\n{_EN[:-30].rstrip('.')} which nobody had looked at for some ti",
        "## Goal\n- Port it.\n\n## State and progress\n- Done a.\n- Done b.\n- Done c.\n- Now we look "
        "at the sec",
    ],
    "loop": [
        "the tests pass " * 60, "- The file was checked and is fine.\n" * 40,
        f"{_EN}\n" + "and then the next file and then the next file " * 60, "检查库存并记录差异。" * 120,
    ],
    "echo": ["[User]: go\n\n[Assistant]: ok\n\n[User]: on\n\n[Assistant]: yes", f"{_EN}\n</conversation>"],
}  # fmt: skip
