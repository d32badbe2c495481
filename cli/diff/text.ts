import { changeText } from '#testing'
import type { Shape, ShapeField } from './shapes.ts'

/** The differences of one function over all compared objects. */
export interface FleetDiff {
  reconciler: string
  kind: string
  /** Compared objects. */
  objects: number
  /** Objects of which something would change. */
  changed: number
  /** Objects of which the run would fail, or that the schema refuses. */
  failed: number
  /** Changes of the installed definition under which stored objects lose data or are refused. */
  breaking: string[]
  shapes: Shape[]
}

const VERBS: Record<Shape['what'], string> = {
  create: 'create',
  change: 'change',
  delete: 'delete',
  perform: 'perform',
  fail: 'fail for',
  refuse: 'refuse, by the new schema,',
  prune: 'drop, by the new schema, fields of',
  default: 'default, by the new schema, fields of',
}

export function textOf({ reconciler, kind, objects, changed, failed, breaking, shapes }: FleetDiff): string {
  const head = `${reconciler}: ${objects} objects of ${kind} compared, ${changed} would change, ${failed} would fail`
  return [head, ...breaking.map((line) => `  ! ${line}`), ...shapes.map(shapeText)].join('\n')
}

function shapeText({ what, kind, objects, examples, message, fields }: Shape): string {
  const more = objects > examples.length ? ', …' : ''
  const head = `  ${VERBS[what]} ${objects} ${kind} (${examples.join(', ')}${more})`
  const rest = fields === undefined ? ['    in further fields'] : fields.flatMap(fieldText)
  return [head, ...(message === undefined ? [] : [`    ${message}`]), ...rest].join('\n')
}

const fieldText = ({ path, values, isMore }: ShapeField): string[] => {
  const lines = values.map((one) => `    ${changeText({ path, ...one })}`)
  return isMore ? [...lines, `      and further values of ${path}`] : lines
}
