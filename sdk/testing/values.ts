import { isRecord } from '#contracts'
import type { ResourceVersion } from '#sdk'

/** The schema of a CustomResourceDefinition. */
export type Schema = ResourceVersion['schema']

export const PRESERVE = 'x-kubernetes-preserve-unknown-fields'

/** Numbers from 0 up to 1, the same ones for the same seed (mulberry32). */
function numbersOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d_2b_79_f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Texts for patterns and formats, of which those are taken that fit. */
const LIKELY = [
  'a',
  'A',
  'a1',
  'b-2',
  'ab.example.com',
  'https://example.com/a',
  'a@example.com',
  '1',
  '10',
  '5m',
  '1h30m',
  '10Gi',
  '100m',
  '0 0 * * *',
  '@daily',
  '1.2.3',
  'v1.2.3',
  '10.0.0.1',
  '10.0.0.0/8',
  '::1',
  '2030-01-01T00:00:00Z',
  '2030-01-01',
  '12:30',
  'a/b',
  '/a',
  '6ba7b810-9dad-41d1-80b4-00c04fd430c8',
  'bG9uZw==',
]
const ODD = ['', ' ', '0', 'null', '__proto__', 'é€𝄞', 'a"b\\c\n', 'constructor']
const MOST_ITEMS = 3

/** Makes values that a schema admits, or that it does not. */
export class Values {
  readonly #next: () => number
  readonly #examples: ReadonlyMap<string, unknown[]>

  /** `examples`: whole objects, whose values are taken at their paths. */
  constructor(seed: number, examples: readonly unknown[] = []) {
    this.#next = numbersOf(seed)
    const found = new Map<string, unknown[]>()
    for (const one of examples) collect(one, '', found)
    this.#examples = found
  }

  /** A value that the keywords of the schema admit; undefined if none is known. Rules in CEL are not looked at. */
  admitted(schema: Schema, path = ''): unknown {
    if (schema['nullable'] === true && this.#chance(0.15)) return null
    const { enum: listed, default: preset } = schema
    if (Array.isArray(listed)) return this.#oneOf(listed)
    if (preset !== undefined && this.#chance(0.15)) return structuredClone(preset)
    const known = this.#examples.get(path) ?? []
    if (known.length > 0 && this.#chance(0.3)) return structuredClone(this.#oneOf(known))
    if (schema['x-kubernetes-int-or-string'] === true)
      return this.#chance(0.5) ? this.#integer({}) : this.#oneOf(LIKELY)
    switch (schema.type) {
      case 'object':
        return this.#object(schema, path)
      case 'array':
        return this.#array(schema, path)
      case 'boolean':
        return this.#chance(0.5)
      case 'integer':
        return this.#integer(schema)
      case 'number':
        return this.#chance(0.5) ? this.#integer(schema) : this.#between(schema)
      case 'string':
        return this.#text(schema, path)
      case undefined:
      default:
        return this.#any()
    }
  }

  /** Returns a copy in which fields are missing, null, or of another type. */
  broken(value: unknown, likelihood = 0.1): unknown {
    if (this.#chance(likelihood)) return this.#any()
    if (Array.isArray(value)) return value.map((item) => this.broken(item, likelihood))
    if (!isRecord(value)) return value
    const left = Object.entries(value).filter(() => !this.#chance(likelihood))
    return Object.fromEntries(left.map(([name, field]) => [name, this.broken(field, likelihood)]))
  }

  /** Returns a copy with one edit: a field is set, changed or left out, an element of a list comes, goes or moves. */
  edited(value: unknown, schema: Schema, path = ''): unknown {
    if (Array.isArray(value) && schema.items !== undefined) return this.#editedList(value, schema, schema.items, path)
    const { properties: fields = {}, required = [] } = schema
    const name = this.pick(Object.keys(fields))
    const field = name === undefined ? undefined : fields[name]
    if (name === undefined || field === undefined || !isRecord(value)) return this.admitted(schema, path)
    const { [name]: before, ...others } = value
    if (before !== undefined && !required.includes(name) && this.#chance(0.2)) return others
    const at = `${path}.${name}`
    const after = before === undefined ? this.admitted(field, at) : this.edited(before, field, at)
    return after === undefined ? value : { ...value, [name]: after }
  }

  #editedList(list: unknown[], schema: Schema, items: Schema, path: string): unknown[] {
    const at = Math.floor(this.#next() * (list.length + 1))
    const to = Math.floor(this.#next() * (list.length + 1))
    const [item] = list.slice(at)
    const kind = item === undefined ? 'add' : this.pick(['add', 'change', 'move', 'remove'])
    if (kind === 'remove') return list.toSpliced(at, 1)
    if (kind === 'move') return list.toSpliced(at, 1).toSpliced(to, 0, item)
    const made = kind === 'change' ? this.edited(item, items, `${path}[]`) : this.admitted(items, `${path}[]`)
    return made === undefined ? list : this.#unique(list.toSpliced(at, kind === 'change' ? 1 : 0, made), schema)
  }

  /** Returns one of the list. */
  pick<T>(list: readonly T[]): T | undefined {
    return list[Math.floor(this.#next() * list.length)]
  }

  #chance(likelihood: number): boolean {
    return this.#next() < likelihood
  }

  #oneOf(list: readonly unknown[]): unknown {
    return this.pick(list)
  }

  #object(schema: Schema, path: string): unknown {
    const fields: [string, unknown][] = []
    for (const [name, field] of Object.entries(schema.properties ?? {})) {
      if (schema.required?.includes(name) !== true && this.#chance(0.35)) continue
      const value = this.admitted(field, `${path}.${name}`)
      if (value !== undefined) fields.push([name, value])
    }
    const { additionalProperties: values } = schema
    const others = this.#count({ maxItems: schema['maxProperties'] })
    for (let index = 0; index < others; index++) {
      const name = String(this.#oneOf(['a', 'b.example.com/c', ...ODD]))
      if (values !== undefined) fields.push([name, this.admitted(values, `${path}.*`)])
      else if (schema[PRESERVE] === true && !Object.hasOwn(schema.properties ?? {}, name))
        fields.push([name, this.#any()])
    }
    return Object.fromEntries(fields.filter(([, value]) => value !== undefined))
  }

  #array(schema: Schema, path: string): unknown {
    const items: unknown[] = []
    const length = this.#count(schema)
    for (let index = 0; index < length; index++) {
      const item = this.admitted(schema.items ?? {}, `${path}[]`)
      if (item !== undefined) items.push(item)
    }
    return this.#unique(items, schema)
  }

  /** Leaves out the elements that a set or a list with keys may not have. */
  #unique(list: unknown[], schema: Schema): unknown[] {
    const keys = schema['x-kubernetes-list-map-keys'] as string[] | undefined
    if (keys === undefined && schema['x-kubernetes-list-type'] !== 'set') return list
    const idOf = (one: unknown): string => JSON.stringify(isRecord(one) && keys ? keys.map((key) => one[key]) : one)
    return [...new Map(list.toReversed().map((one) => [idOf(one), one])).values()].reverse()
  }

  #count({ minItems = 0, maxItems = MOST_ITEMS }: Record<string, unknown>): number {
    const [least, most] = [Number(minItems), Math.min(Number(maxItems), Number(minItems) + MOST_ITEMS)]
    return least + Math.floor(this.#next() * (most - least + 1))
  }

  #integer(schema: Record<string, unknown>): number {
    const isShort = schema['format'] !== 'int64'
    const least = Math.ceil(Number(schema['minimum'] ?? (isShort ? -(2 ** 31) : Number.MIN_SAFE_INTEGER)))
    const most = Math.floor(Number(schema['maximum'] ?? (isShort ? 2 ** 31 - 1 : Number.MAX_SAFE_INTEGER)))
    const low = schema['exclusiveMinimum'] === true ? least + 1 : least
    const high = schema['exclusiveMaximum'] === true ? most - 1 : most
    const unit = Number(schema['multipleOf'] ?? 1)
    const near = [0, 1, 2, 80, low, low + 1, high, high - 1, Math.floor(this.#next() * 1000)]
    const found = near.map((one) => Math.ceil(one / unit) * unit).filter((one) => one >= low && one <= high)
    return (this.pick(found) ?? low) + 0
  }

  #between(schema: Record<string, unknown>): number {
    const [least, most] = [Number(schema['minimum'] ?? -1e6), Number(schema['maximum'] ?? 1e6)]
    return schema['multipleOf'] === undefined ? least + this.#next() * (most - least) : this.#integer(schema)
  }

  #text(schema: Record<string, unknown>, path: string): unknown {
    const { minLength = 0, maxLength = Number.POSITIVE_INFINITY, allOf = [] } = schema
    const { pattern, format } = schema as { pattern?: string; format?: string }
    const [least, most] = [Number(minLength), Number(maxLength)]
    const patterns = [pattern, ...(allOf as { pattern?: string }[]).map((one) => one.pattern)]
    const long = 'x'.repeat(Math.min(most, Math.max(least, 300)))
    const examples = (this.#examples.get(path) ?? []).filter((one) => typeof one === 'string')
    const found = [...examples, ...LIKELY, ...ODD, 'x'.repeat(least), long].filter(
      (text) =>
        Array.from(text).length >= least &&
        Array.from(text).length <= most &&
        patterns.every((one) => one === undefined || new RegExp(one, 'u').test(text)) &&
        (format === undefined || (FORMATS[format]?.test(text) ?? true)),
    )
    return this.pick(found)
  }

  #any(): unknown {
    return this.#oneOf([null, '', 'a', 0, -1, 1.5, true, [], {}, { a: { b: 1 } }, [{ a: 1 }], ['a', 1]])
  }
}

const FORMATS: Record<string, RegExp> = {
  'date-time': /^\d{4}-\d\d-\d\dT[\d:.]+Z$/,
  date: /^\d{4}-\d\d-\d\d$/,
  email: /^\w+@\w+\.\w+$/,
  uri: /^https:/,
  uuid: /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/,
  ipv4: /^\d+(?:\.\d+){3}$/,
  ipv6: /^::1$/,
}

function collect(value: unknown, path: string, found: Map<string, unknown[]>): void {
  const list = found.get(path) ?? []
  found.set(path, [...list, value])
  if (Array.isArray(value)) for (const item of value) collect(item, `${path}[]`, found)
  else if (isRecord(value)) for (const [name, field] of Object.entries(value)) collect(field, `${path}.${name}`, found)
}
