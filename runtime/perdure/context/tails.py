"""Whether the end of an output matters: errors, totals and closing structures stand there.

Words are matched in the languages people's tools and shells speak; a false hit only costs 30 % of the
head, a miss costs the error message. A word ends where its alphabet does: `error错误` has both.
"""

from __future__ import annotations

import re

from perdure.context.numbers import IMPORTANT_TAIL_CHARS

_WORD = re.compile(r"[a-z0-9_\u00e0-\u024f\u0430-\u045f]+")

_SPACED = """
error errors exception exceptions failed failure failures failing fatal traceback panic panicked errno killed
aborted denied refused timeout warning warnings passed total summary result results complete
completed finished done succeeded success
fehler fehlgeschlagen ausnahme abgebrochen fertig ergebnis zusammenfassung gesamt erfolgreich
erreur erreurs échec échoué terminé résultat résultats résumé réussi
errores fallo falló excepción terminado resultado resultados resumen éxito
erro falha falhou exceção concluído sucesso
errore errori eccezione fallito completato risultato totale
fout mislukt klaar błąd niepowodzenie gotowe wynik hata başarısız tamamlandı fel misslyckades klart
ошибка ошибки ошибку исключение сбой готово итого результат завершено помилка
"""
_WORDS = frozenset(_SPACED.split())
_PHRASES = (
    "stack trace", "exit code", "exit status", "segmentation fault", "timed out", "not found", "не удалось",
)  # fmt: skip
_WITHOUT_SPACES = """
错误 錯誤 异常 異常 失败 失敗 致命 崩溃 崩潰 超时 超時 拒绝 完成 总计 總計 合计 合計 汇总 摘要 结果 結果
成功 警告 退出码 エラー 例外 致命的 タイムアウト 終了コード 完了 まとめ 오류 에러 예외 실패 완료
합계 결과 성공 ข้อผิดพลาด สำเร็จ خطأ فشل נכשל שגיאה त्रुटि विफल
"""
_UNSPACED = tuple(_WITHOUT_SPACES.split())
_CLOSING = ("}", "]")


def has_important_tail(text: str) -> bool:
    """Look at the last 2,000 characters for words of outcome, or a closing brace at the very end."""
    tail = text[-IMPORTANT_TAIL_CHARS:].lower()
    if tail.rstrip().endswith(_CLOSING) or not _WORDS.isdisjoint(_WORD.findall(tail)):
        return True
    if any(phrase in tail for phrase in _PHRASES):
        return True
    return not tail.isascii() and any(word in tail for word in _UNSPACED)
