"""Whether the end of an output matters: errors, totals and closing structures stand there.

Words are matched in the languages people's tools and shells speak; a false hit only costs 30 % of the
head, a miss costs the error message. A word ends where its alphabet does: `error错误` has both.
"""

from __future__ import annotations

import re
import unicodedata

from perdure.context.numbers import IMPORTANT_TAIL_CHARS

_WORD = re.compile(r"[a-z0-9_\u00df-\u024f\u03ac-\u03ce\u0430-\u045f\u0491\u1e00-\u1eff]+")

_SPACED = """
error errors exception exceptions fail fails failed failure failures failing fatal traceback panic panicked
errno killed abort aborted interrupted denied refused timeout crash crashed unsuccessful warning warnings
passed total summary result results complete completed finished done succeeded success
fehler fehlgeschlagen gescheitert ausnahme abgebrochen warnung fertig ergebnis zusammenfassung gesamt
erfolgreich bestanden
erreur erreurs échec échecs échoué échouée terminé terminée résultat résultats résumé réussi avertissement
errores fallo fallos falló fallaron excepción advertencia terminado completado resultado resultados resumen
éxito
erro erros falha falhas falhou falharam exceção aviso concluído concluída sucesso
errore errori eccezione fallito falliti completato risultato risultati totale riuscito avviso
fout fouten mislukt klaar geslaagd waarschuwing
błąd błędy niepowodzenie nieudane zakończono gotowe wynik ostrzeżenie
chyba chyby selhalo selhání hotovo dokončeno výsledek hiba sikertelen sikeres kész eredmény
eroare erori eșuat finalizat rezultat
hata hatası başarısız başarisiz tamamlandı tamamlandi sonuç uyarı
fel misslyckades klart resultat varning fejl mislykkedes færdig feil mislyktes ferdig
virhe epäonnistui valmis tulos yhteensä varoitus
ошибка ошибки ошибку ошибок исключение сбой неудача провалено готово итого результат завершено успешно
предупреждение помилка помилки невдача готово завершено успішно грешка
σφάλμα σφαλμα αποτυχία αποτυχια απέτυχε ολοκληρώθηκε ολοκληρωθηκε σύνολο συνολο αποτέλεσμα αποτελεσμα επιτυχία
kesalahan gagal selesai berhasil hasil ralat lỗi
"""
_WORDS = frozenset(_SPACED.split())
_PHRASES = (
    "stack trace", "exit code", "exit status", "segmentation fault", "core dumped", "timed out", "not found",
    "не удалось", "thất bại", "hoàn thành", "thành công", "kết quả", "code de sortie", "código de salida",
)  # fmt: skip
_WITHOUT_SPACES = """
错误 錯誤 报错 報錯 出错 异常 異常 失败 失敗 致命 崩溃 崩潰 超时 超時 拒绝 拒絕 中止 终止 完成 完毕 总计 總計
合计 合計 共计 汇总 匯總 摘要 总结 结果 結果 成功 通过 通過 警告 退出码
エラー 例外 致命的 タイムアウト 終了コード 中断 完了 まとめ 오류 에러 예외 실패 완료 합계 결과 성공 경고 종료
ข้อผิดพลาด ล้มเหลว สำเร็จ เสร็จสิ้น ผลลัพธ์ خطأ فشل نجاح اكتمل نتيجة خطا شکست نکامی נכשל שגיאה הושלם סיכום
त्रुटि विफल असफल सफल पूर्ण परिणाम
"""
_UNSPACED = tuple(_WITHOUT_SPACES.split())
_CLOSING = ("}", "]")


def has_important_tail(text: str) -> bool:
    """Look at the last 2,000 characters for words of outcome, or a closing brace at the very end."""
    tail = text[-IMPORTANT_TAIL_CHARS:]
    if not tail.isascii():  # accents in two characters, letters in full width
        tail = unicodedata.normalize("NFKC", tail)
    tail = tail.lower()
    if tail.rstrip().endswith(_CLOSING) or not _WORDS.isdisjoint(_WORD.findall(tail)):
        return True
    if any(phrase in tail for phrase in _PHRASES):
        return True
    return not tail.isascii() and any(word in tail for word in _UNSPACED)
