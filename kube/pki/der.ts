/** The DER types (X.690) that an X.509 certificate consists of. */
export type Der = Buffer

const tag = {
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
}

export const sequence = (...items: Der[]): Der => tlv(tag.sequence, Buffer.concat(items))
export const set = (...items: Der[]): Der => tlv(tag.set, Buffer.concat(items))
export const octets = (content: Buffer): Der => tlv(tag.octetString, content)
export const bits = (content: Buffer, unused = 0): Der =>
  tlv(tag.bitString, Buffer.concat([Buffer.of(unused), content]))
export const utf8 = (text: string): Der => tlv(tag.utf8String, Buffer.from(text, 'utf8'))
export const boolean = (value: boolean): Der => tlv(0x01, Buffer.of(value ? 0xff : 0))

/** `[n]` with content that keeps its own tag (explicit tagging). */
export const explicit = (n: number, content: Der): Der => tlv(0xa0 | n, content)
/** `[n]` instead of the content's own, primitive tag (implicit tagging). */
export const implicit = (n: number, content: Buffer): Der => tlv(0x80 | n, content)

/** A non-negative number, as big-endian bytes. */
export function integer(bytes: Buffer): Der {
  const start = bytes.findIndex((byte) => byte !== 0)
  const significant = start < 0 ? Buffer.of(0) : bytes.subarray(start)
  return tlv(tag.integer, (significant[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.of(0), significant]) : significant)
}

export function oid(dotted: string): Der {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  return tlv(tag.oid, Buffer.from([first * 40 + second, ...rest.flatMap(base128)]))
}

/** UTCTime has two digits of the year, so dates from 2050 on are GeneralizedTime (RFC 5280, 4.1.2.5). */
export function time(date: Date): Der {
  const compact = date.toISOString().replaceAll(/[-:T]|\.\d+/g, '')
  const isLate = date.getUTCFullYear() >= 2050
  return tlv(isLate ? tag.generalizedTime : tag.utcTime, Buffer.from(isLate ? compact : compact.slice(2), 'ascii'))
}

function tlv(tagByte: number, content: Buffer): Der {
  return Buffer.concat([Buffer.of(tagByte), length(content.length), content])
}

function length(n: number): Buffer {
  if (n < 0x80) return Buffer.of(n)
  return n < 0x100 ? Buffer.of(0x81, n) : Buffer.of(0x82, n >> 8, n & 0xff)
}

function base128(n: number): number[] {
  const digits = [n & 0x7f]
  for (let rest = n >> 7; rest > 0; rest >>= 7) digits.unshift((rest & 0x7f) | 0x80)
  return digits
}
