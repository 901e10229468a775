"""Answers in which a model says that it won't or can't summarise, in the languages people meet."""

from __future__ import annotations

import re

_OPENING = re.compile(
    r"^\W*(?:i['’]?m (?:really |very |so )?sorry|i am (?:really |very )?sorry|sorry\b|i apologi[sz]e|"
    r"my apologies|"
    r"i can['’]?t|i can ?not|i won['’]?t|i will not|as an ai|unfortunately,? i|i must decline|"
    r"i have to decline|"
    r"i(?:['’]d| would) (?:rather|prefer) not|(?:i['’]?m |i am )?(?:not able|unable|not permitted|"
    r"not allowed) to|"
    r"cannot (?:help|comply|assist|summari|process|provide)|can['’]t (?:help|comply|assist|summari|"
    r"do that)|no comment|"
    r"request (?:denied|blocked|refused)|content (?:filtered|blocked)|"
    r"很?抱歉|对不起|對不起|不好意思|我(?:不能|无法|無法|不会|不會|不便)|无法(?:提供|完成|协助|总结|處理|处理)|無法(?:提供|完成|協助|總結)|"
    r"作为(?:一个|一名)?(?:ai|人工智能|语言模型)|作為(?:一個)?(?:ai|人工智慧|語言模型)|"
    r"申し訳|恐れ入りますが|すみません|できません|お手伝いできません|お答えできません|要約できません|"
    r"죄송|도와드릴 수 없|제공할 수 없|요약할 수 없|"
    r"es tut mir leid|tut mir leid|entschuldigung|ich kann (?:das |dies |dabei |hier |ihnen |dir |"
    r"diese\w* )?\w* ?nicht|"
    r"leider kann ich|ich bin nicht in der lage|"
    r"je suis (?:vraiment )?désolée?|désolée?|je ne peux pas|je ne suis pas en mesure|malheureusement,? je|"
    r"lo siento|lo lamento|no puedo|disculpa|me temo que no|lamentablemente,? no|"
    r"desculpe|sinto muito|não posso|infelizmente,? não|mi dispiace|non posso|purtroppo non|"
    r"het spijt me|ik kan (?:dit |dat |je |u |hier )?niet|helaas kan ik|tyvärr|jag kan inte|"
    r"przepraszam|przykro mi|nie mogę|niestety nie|üzgünüm|maalesef|maaf|xin lỗi|tôi không thể|"
    r"извините|простите|прошу прощения|я не могу|к сожалению|вибачте|я не можу|"
    r"آسف|عذر|لا أستطيع|لا يمكنني|मुझे खेद|मैं नहीं|ขออภัย|ขอโทษ)",
    re.IGNORECASE,
)
_SHORT = 400
"""A longer text that begins with an apology may still be a summary of one …"""

_TASK = re.compile(
    r"(?:\bi(?:['’]?m| am)? (?:really |also |therefore )?(?:can['’]?t|can ?not|won['’]?t|will not|"
    r"must decline to|"
    r"have to decline to|not able to|unable to|not comfortable(?: with)?) "
    r"(?:help|assist|comply|continue|proceed|engage|summari[sz](?:e|ing)|(?:provide|create|produce|"
    r"generate|write|give)\b"
    r"[^.]{0,40}\bsummary|fulfil+|process|complete|do that)"
    r"(?! (?:him|her|them)\b)"
    r"|please (?:provide|share|paste|send|supply)\b[^.]{0,40}\b(?:conversation|transcript|text|"
    r"history|content|messages?)"
    r"|(?:could|can) you (?:please )?(?:provide|share|paste|send)\b[^.?]{0,40}\b(?:conversation|"
    r"transcript|text)"
    r"|there (?:is|was|seems to be|appears to be) (?:no|nothing)\b[^.]{0,30}\bto summari[sz]e"
    r"|no (?:conversation|transcript) (?:was|has been|is) (?:provided|included|given)"
    r"|(?:无法|不能|無法|没法)[^。\n]{0,16}(?:总结|摘要|總結|概括|协助|協助)|请(?:提供|粘贴|發送|发送)[^。\n]{0,12}(?:对话|内容|文本)"
    r"|(?:要約|お手伝い|対応)(?:する)?(?:こと)?(?:は|が)?(?:いた)?(?:できません|できかねます|しかねます)"
    r"|(?:요약|도움)[^.\n]{0,12}(?:할|드릴) 수 없|ich kann[^.\n]{0,60}nicht (?:zusammenfassen|helfen)"
    r"|je ne (?:peux|puis) pas[^.\n]{0,40}(?:résumer|aider|résumé)|no puedo[^.\n]{0,40}(?:resumir|"
    r"ayudar|resumen)"
    r"|não posso[^.\n]{0,40}(?:resumir|ajudar|resumo)|non posso[^.\n]{0,40}(?:riassumere|aiutar)"
    r"|не могу[^.\n]{0,40}(?:помочь|резюмировать|обобщить|составить|краткое))",
    re.IGNORECASE,
)
"""… unless it speaks, in the first person, of just this task."""

_REPORTED = re.compile(
    r"\b(?:user|assistant|agent|model|they|he|she)\b[^.\n]{0,60}$|[\"“'‘«「『][^\"”'’»」』\n]*$", re.I
)
_BEGINNING = 700


def is_refusal(text: str) -> bool:
    """Whether a text declines to summarise rather than summarise that somebody declined."""
    if len(text) <= _SHORT and _OPENING.search(text):
        return True
    if text.count("\n## ") + text.startswith("## ") >= 2:
        return False
    for found in _TASK.finditer(text[:_BEGINNING]):
        before = text[max(0, found.start() - 80) : found.start()]
        if not _REPORTED.search(before):
            return True
    return False
