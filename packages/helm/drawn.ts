import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from '#sdk'

type Path = readonly (string | number)[]

/** A value that each rendering of the same values draws anew. */
export interface Drawn {
  path: Path
  /** What it is in other renderings. */
  others: readonly unknown[]
  /** It is drawn again for other values, such as a certificate for a host, or the checksum of a Secret. */
  isKeyed: boolean
}

/** An object as a rendering makes it. It is shared: nobody may change it. */
export interface RenderedObject {
  object: KubeObject
  drawn: readonly Drawn[]
  /** The path of the template in the chart. */
  template: string
}

/** The annotation with the hash of the values for which a keyed value was drawn. */
const DRAWN_FOR = 'helm.fairlead.dev/drawn-for'

/** Returns where the object differs from itself in other renderings. `isKeyed`: its template draws by values. */
export const drawnIn = (object: KubeObject, others: readonly KubeObject[], isKeyed: boolean): Drawn[] =>
  [...differences(object, others, [])].map((one) => ({ ...one, isKeyed: isKeyed || one.path.includes('annotations') }))

function* differences(one: unknown, others: readonly unknown[], path: Path): Generator<Omit<Drawn, 'isKeyed'>> {
  if (others.every((other) => isDeepStrictEqual(one, other))) return
  if (!isBranch(one) || areTexts(one) || !others.every((other) => hasKeysOf(one, other))) return yield { path, others }
  const branches = others as readonly Branch[]
  for (const step of Object.keys(one))
    yield* differences(
      one[step],
      branches.map((other) => other[step]),
      [...path, step],
    )
}

type Branch = Record<string, unknown>
const isBranch = (value: unknown): value is Branch => typeof value === 'object' && value !== null
const areTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === 'string')
const hasKeysOf = (one: Branch, other: unknown): boolean =>
  isBranch(other) && isDeepStrictEqual(Object.keys(one), Object.keys(other))

/** Returns the object without what is drawn, so that it is the same in each rendering. */
export function withoutDrawn({ object, drawn }: RenderedObject): KubeObject {
  const fixed = structuredClone(object)
  for (const { path, others } of drawn)
    set(fixed, path, (made) => {
      const lines = typeof made === 'string' && !isCertificate(made) ? fixedLines(made, others) : undefined
      return lines?.join('\n') ?? null
    })
  return fixed
}

/** Returns the lines that are the same in each rendering. Undefined: there are none, or it is not clear. */
function fixedLines(made: string, others: readonly unknown[]): string[] | undefined {
  if (!others.every((other) => typeof other === 'string')) return undefined
  const [lines = [], ...texts] = [made, ...others].map((text) => text.split('\n'))
  if (texts.some(({ length }) => length !== lines.length)) return undefined
  const fixed = lines.filter((line, index) => texts.every((text) => text[index] === line))
  return fixed.length === 0 ? undefined : fixed
}

function set(object: unknown, path: Path, value: (before: unknown) => unknown): void {
  const last = path.at(-1)
  const parent = path.slice(0, -1).reduce<unknown>((at, step) => (isBranch(at) ? at[step] : undefined), object)
  if (last !== undefined && isBranch(parent)) parent[last] = value(parent[last])
}

/** What is known of the objects of a release that exist. */
interface Existing {
  find: (object: KubeObject) => KubeObject | undefined
  /** The hash of the values. */
  values: string
  /** The hash of the values of the last release, for an object without the annotation. Undefined: it is not known. */
  before: string | undefined
  /** What a former operator has made is not all seen at once. */
  isTakenOver: boolean
}

/**
 * Returns how an object of the release gets its drawn values: those of the object that exists, as far as they are there. If
 * the object is lost, a value that another object has too, also as a part of a text, is taken from that one. Certificates of one
 * template fit together only as they were drawn: if one is missing, all of them are drawn again.
 */
export function asDrawn(
  release: readonly RenderedObject[],
  { find, values, before: last, isTakenOver }: Existing,
): (rendered: RenderedObject) => KubeObject {
  const keptIn = ({ object, drawn: one }: { object: KubeObject; drawn: Drawn }): unknown => {
    const observed = find(object)
    const known = observed?.metadata.annotations?.[DRAWN_FOR] ?? last
    return one.isKeyed && known !== undefined && known !== values ? undefined : counterpart(observed, object, one.path)
  }
  const all = release.flatMap(({ drawn, ...rendered }) => drawn.map((one) => ({ ...rendered, drawn: one })))
  const isOfCertificate = ({ object, drawn: { path } }: (typeof all)[number]) => isCertificate(at(object, path))
  const broken = isTakenOver ? [] : all.filter((one) => isOfCertificate(one) && keptIn(one) === undefined)
  const templates = new Set(broken.map(({ template }) => template))
  const beforeOf = (one: (typeof all)[number]): unknown =>
    isOfCertificate(one) && templates.has(one.template) ? undefined : keptIn(one)
  const shared = all.flatMap((one): [string, string][] => {
    const [made, before] = [plain(one.object, at(one.object, one.drawn.path)), plain(one.object, beforeOf(one))]
    return made !== undefined && before !== undefined && made.length >= SHORTEST_SHARED ? [[made, before]] : []
  })
  shared.sort(([one], [other]) => other.length - one.length)
  const replaced = (text: string) =>
    shared.reduce((known, [made, before]) => known.replaceAll(made, () => before), text)
  return ({ object, drawn, template }) => {
    const made = structuredClone(object)
    const befores = drawn.map((one) => beforeOf({ object, drawn: one, template }))
    // What a former operator has drawn gets the annotation when it is drawn again: until then, nothing of it changes.
    const isAnnotated = find(object)?.metadata.annotations?.[DRAWN_FOR] !== undefined
    if (drawn.some(({ isKeyed }, index) => isKeyed && (isAnnotated || befores[index] === undefined)))
      made.metadata.annotations = { ...made.metadata.annotations, [DRAWN_FOR]: values }
    for (const [index, one] of drawn.entries()) {
      const before = befores[index]
      set(made, one.path, (value) =>
        before === undefined ? changedText(object, value, replaced) : merged(object, value, one.others, before),
      )
    }
    return made
  }
}

/** A shorter text may be a part of others by chance. */
const SHORTEST_SHARED = 8

const at = (value: unknown, path: Path): unknown =>
  path.reduce<unknown>((found, step) => (isBranch(found) ? found[step] : undefined), value)

/** Returns the value of the observed object that has the path in the made one. Items with a name are found by it. */
function counterpart(observed: unknown, made: unknown, path: Path): unknown {
  let [there, here] = [observed, made]
  for (const step of path) {
    if (!isBranch(there) || !isBranch(here)) return undefined
    there = Array.isArray(here) ? itemOf(there, here, Number(step)) : there[step]
    here = here[step]
  }
  return there
}

function itemOf(there: Branch, here: readonly unknown[], index: number): unknown {
  if (!Array.isArray(there)) return undefined
  const items = there as unknown[]
  const found = items.find((one) => nameOf(one) !== undefined && nameOf(one) === nameOf(here[index]))
  if (found !== undefined) return found
  const isOfAnother = here.some((one) => nameOf(one) !== undefined && nameOf(one) === nameOf(items[index]))
  return items.length === here.length && !isOfAnother ? items[index] : undefined
}

const nameOf = (item: unknown): string | undefined =>
  isBranch(item) && typeof item['name'] === 'string' ? item['name'] : undefined

const isSecret = ({ kind, apiVersion }: KubeObject): boolean => kind === 'Secret' && apiVersion === 'v1'

/** Returns the text of a value, which is encoded in a Secret. Undefined: it is no text. */
function plain(object: KubeObject, value: unknown): string | undefined {
  if (typeof value !== 'string' || !isSecret(object)) return typeof value === 'string' ? value : undefined
  const text = Buffer.from(value, 'base64').toString()
  return encoded(text) === value ? text : value
}

const encoded = (text: string): string => Buffer.from(text).toString('base64')

/** Applies a change of texts to a value as it stands in the object. */
function changedText(object: KubeObject, value: unknown, change: (text: string) => string): unknown {
  if (areTexts(value)) return value.map(change)
  const text = plain(object, value)
  if (text === undefined) return value
  return text === value ? change(text) : encoded(change(text))
}

/** Certificates and keys in PEM, also encoded. */
const isCertificate = (value: unknown): boolean => typeof value === 'string' && /-----BEGIN|LS0tLS1CRUdJTi/.test(value)

/** Returns the value of before, with the lines of the made one that are not drawn. */
function merged(object: KubeObject, made: unknown, others: readonly unknown[], before: unknown): unknown {
  if (areTexts(made)) {
    if (!Array.isArray(before) || !others.every(areTexts)) return before
    return linesOf(made, others, before as string[], true) ?? (made.length === before.length ? before : made)
  }
  const [text, old] = [plain(object, made), plain(object, before)]
  const texts = others.map((other) => plain(object, other))
  if (text === undefined || old === undefined || texts.includes(undefined) || isCertificate(text)) return before
  const split = (one: string | undefined) => (one ?? '').split('\n')
  const lines = linesOf(split(text), texts.map(split), split(old))?.join('\n')
  if (lines === undefined) return before
  return isSecret(object) && made !== text ? encoded(lines) : lines
}

/** Returns the made lines, with what was drawn in those of before. Undefined: it is not clear where that is. */
function linesOf(
  made: readonly string[],
  others: readonly (readonly string[])[],
  before: readonly string[],
  isList = false,
): string[] | undefined {
  if (others.some(({ length }) => length !== made.length)) return undefined
  const lines: string[] = []
  for (const [index, line] of made.entries()) {
    const all = [line, ...others.map((other) => other[index] ?? '')]
    const found = all.every((one) => one === line) ? line : lineOf(index, all, made, before, isList)
    if (found === undefined) return undefined
    lines.push(found)
  }
  return lines
}

/**
 * Returns a line with what was drawn in the one of before, which begins as it does. If none does, it is a new item of a list;
 * in a text, what is drawn may begin alike by chance.
 */
function lineOf(
  index: number,
  [line = '', ...others]: readonly string[],
  made: readonly string[],
  before: readonly string[],
  isList: boolean,
): string | undefined {
  const start = startOf([line, ...others])
  if (start === '') return undefined
  const begins = (one: string) => one.startsWith(start)
  const candidates = before.filter(begins)
  if (candidates.length === 0) return isList ? line : undefined
  if (candidates.length !== made.filter(begins).length) return undefined
  const old = candidates[made.slice(0, index).filter(begins).length]?.slice(start.length) ?? ''
  const end = endOf([line, ...others].map((one) => one.slice(start.length)))
  if (end === '') return start + old
  const [stop = ''] = end
  const drawn = line.slice(start.length, line.length - end.length)
  return drawn.includes(stop) || !old.includes(stop) ? undefined : start + old.slice(0, old.indexOf(stop)) + end
}

/** Returns how all texts begin, up to a character that is neither a letter nor a digit: these may be equal by chance. */
function startOf([first = '', ...others]: readonly string[]): string {
  let length = 0
  while (length < first.length && others.every((other) => other[length] === first[length])) length++
  return /^.*[^A-Za-z0-9]/s.exec(first.slice(0, length))?.[0] ?? ''
}

/** Returns how all texts end, from such a character on. */
function endOf([first = '', ...others]: readonly string[]): string {
  let length = 0
  while (length < first.length && others.every((other) => other.at(-length - 1) === first.at(-length - 1))) length++
  return /[^A-Za-z0-9].*$/s.exec(first.slice(first.length - length))?.[0] ?? ''
}
