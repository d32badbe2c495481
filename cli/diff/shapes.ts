import type { Difference } from '#reconcile'

/** One change of one object. */
export interface Change {
  what: 'create' | 'change' | 'delete' | 'perform' | 'fail' | 'refuse' | 'prune' | 'default'
  /** The kind of the object, or of the effect. */
  kind: string
  /** `namespace/name` of the changed object. */
  object: string
  /** Left out for a new object: its fields are not compared. */
  differences: readonly Difference[]
  /** The error of a failure. */
  message?: string
}

/** Changes of one kind of object that concern the same fields. */
export interface Shape {
  what: Change['what']
  kind: string
  objects: number
  examples: string[]
  message?: string
  /** Left out: fields of several shapes, because there are too many shapes. */
  fields?: ShapeField[]
}

export interface ShapeField {
  /** Indexes of lists are left out: `.spec.containers[*].image`. */
  path: string
  /** The first ones. */
  values: Pick<Difference, 'before' | 'after'>[]
  /** There are further values. */
  isMore: boolean
}

const EXAMPLES = 3
const VALUES = 3
const MAX_SHAPES = 200
const LONGEST = 200

/** Groups changes by shape, in memory that does not depend on their number. */
export class Shapes {
  readonly #shapes = new Map<string, { shape: Shape; fields: Map<string, Field> | undefined }>()

  add(change: Change): void {
    const fields = Map.groupBy(change.differences, ({ path }) => path.replaceAll(/\[\d+\]/g, '[*]'))
    const about = [change.what, change.kind]
    const id = JSON.stringify([...about, change.message, [...fields.keys()].sort()])
    const isKnown = this.#shapes.has(id) || this.#shapes.size < MAX_SHAPES
    const { message, what, kind } = change
    const entry = this.#entry(isKnown ? id : JSON.stringify(about), () => ({
      shape: { what, kind, objects: 0, examples: [], ...(isKnown && message !== undefined && { message }) },
      fields: isKnown ? new Map<string, Field>() : undefined,
    }))
    entry.shape.objects++
    if (entry.shape.examples.length < EXAMPLES) entry.shape.examples.push(change.object)
    if (entry.fields === undefined) return
    for (const [path, found] of fields) noted(entry.fields, path, found)
  }

  /** The most frequent first. */
  list(): Shape[] {
    return [...this.#shapes.values()]
      .map(({ shape, fields }) => ({
        ...shape,
        ...(fields && {
          fields: [...fields].map(([path, { values, isMore }]) => ({ path, values: [...values.values()], isMore })),
        }),
      }))
      .sort((one, other) => other.objects - one.objects)
  }

  #entry(id: string, make: () => { shape: Shape; fields: Map<string, Field> | undefined }) {
    const entry = this.#shapes.get(id) ?? make()
    this.#shapes.set(id, entry)
    return entry
  }
}

interface Field {
  values: Map<string, ShapeField['values'][number]>
  isMore: boolean
}

function noted(fields: Map<string, Field>, path: string, found: readonly Difference[]): void {
  const field = fields.get(path) ?? { values: new Map(), isMore: false }
  fields.set(path, field)
  for (const { path: _, ...values } of found) {
    const text = JSON.stringify(values)
    if (field.values.has(text)) continue
    if (field.values.size >= VALUES) field.isMore = true
    else field.values.set(text, shortened(values))
  }
}

const shortened = (values: ShapeField['values'][number]): ShapeField['values'][number] =>
  Object.fromEntries(
    Object.entries(values).map(([name, value]) => {
      const text = JSON.stringify(value)
      return [name, text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : value]
    }),
  )

/** The message with the names of its object left out, so that the same failure of many objects is one. */
export function messageShape(message: string, { namespace, name }: { namespace?: string; name: string }): string {
  const known = [name, ...(namespace === undefined ? [] : [namespace])].filter((text) => text.length > 1)
  return known
    .reduce((text, one) => text.replaceAll(wordOf(one), one === name ? 'NAME' : 'NAMESPACE'), message)
    .slice(0, 4 * LONGEST)
}

const wordOf = (text: string): RegExp => new RegExp(`(?<![\\w.])${text.replaceAll(/[.\\]/g, '\\$&')}(?![\\w])`, 'g')
