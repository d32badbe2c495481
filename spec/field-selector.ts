import type { KubeObject } from '#contracts'
import { FIELD_PATH, valuesAt } from './fields.ts'
import { SelectorError } from './selector.ts'

export type ObjectSelector = (object: KubeObject) => boolean

const TERM = /^([^!=]+?)\s*(==|=|!=)\s*(.*)$/

/**
 * Returns the selector as a predicate. The API server decides which fields of a kind a selector may use, and refuses
 * others. All of these fields, except `source` of Events, are paths in the object. A missing field counts as the empty
 * string, and so does a field that has no single value; the API server supports no such field.
 */
export function parseFieldSelector(text: string): ObjectSelector {
  if (text.trim() === '') return () => true
  const requirements = text.split(',').map((term) => parseTerm(term.trim()))
  return (object) => requirements.every((holds) => holds(object))
}

function parseTerm(text: string): ObjectSelector {
  const [, path = '', operator, wanted = ''] = TERM.exec(text) ?? []
  if (!FIELD_PATH.test(path))
    throw new SelectorError(`${JSON.stringify(text)} is not a field requirement: write field=value or field!=value`)
  return (object) => (textAt(object, path) === wanted) === (operator !== '!=')
}

function textAt(object: KubeObject, path: string): string {
  const [value = ''] = valuesAt(object, path)
  if (typeof value === 'object') return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
