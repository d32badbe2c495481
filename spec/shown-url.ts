/** Returns the URL without parts that may be credentials: user, password, query and fragment. */
export function shownUrl(text: string): string {
  const url = URL.parse(text)
  if (url !== null && /^https?:$/.test(url.protocol)) return url.origin + url.pathname
  return text.replace(/^.*@/s, '…@').replace(/[?#].*$/s, '…')
}
