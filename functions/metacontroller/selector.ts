import { type KubeObject, TerminalError } from 'fairlead'
import { type LabelSelector, labelSelector } from './controller.ts'

type Labels = Readonly<Record<string, string>>

/** Returns the selector as text, as Reconcilers have it. */
export function selectorText({ matchLabels = {}, matchExpressions = [] }: LabelSelector): string {
  return [
    ...Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`),
    ...matchExpressions.map(({ key, operator, values = [] }) => {
      if (operator === 'Exists') return key
      if (operator === 'DoesNotExist') return `!${key}`
      return `${key} ${operator === 'In' ? 'in' : 'notin'} (${values.join(',')})`
    }),
  ].join(',')
}

/** Whether labels match, as metav1.LabelSelector means it: `NotIn` holds for a label that is not there. */
export const matches = ({ matchLabels = {}, matchExpressions = [] }: LabelSelector, labels: Labels = {}): boolean =>
  Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
  matchExpressions.every(({ key, operator, values = [] }) => {
    const value = labels[key]
    if (operator === 'Exists' || operator === 'DoesNotExist') return (value !== undefined) === (operator === 'Exists')
    return (value !== undefined && values.includes(value)) === (operator === 'In')
  })

/** The label of the children of a parent whose controller has `generateSelector`. */
export const CONTROLLER_UID = 'controller-uid'

/** Returns the selector of the children of a parent. Throws a TerminalError if the parent has none, or an empty one. */
export function childSelector(parent: KubeObject, isGenerated: boolean): LabelSelector {
  if (isGenerated) return { matchLabels: { [CONTROLLER_UID]: parent.metadata.uid ?? '' } }
  const { selector } = (parent.spec ?? {}) as { selector?: unknown }
  const { success, data } = labelSelector.safeParse(selector)
  const isEmpty = selectorText(data ?? {}) === ''
  if (success && !isEmpty) return data
  throw new TerminalError(
    `spec.selector ${success ? 'is empty' : 'is no label selector'}: give it matchLabels or matchExpressions, or let the controller have generateSelector: true`,
    { reason: 'NoSelector' },
  )
}
