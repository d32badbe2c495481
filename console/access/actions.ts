import type { ResourceRef } from '#contracts'
import { RECONCILERS } from '#spec'
import type { Action } from './types.ts'

type Kind = Pick<ResourceRef, 'group' | 'resource'>

const inside = (namespace: string | undefined, name?: string) => ({
  ...(namespace !== undefined && { namespace }),
  ...(name !== undefined && { name }),
})

/** To see one object, and its runs; without a name, all of the kind there. */
export const toGet = ({ group, resource }: Kind, namespace: string | undefined, name?: string): Action => ({
  verb: 'get',
  group,
  resource,
  ...inside(namespace, name),
})

/** To see the names of objects, and what the queue and RUNS have of them in short. */
export const toList = ({ group, resource }: Kind, namespace: string | undefined): Action => ({
  verb: 'list',
  group,
  resource,
  ...inside(namespace),
})

const ofReconcilers = (verb: string, subresource: string, name?: string): Action => ({
  verb,
  group: RECONCILERS.group,
  resource: `${RECONCILERS.resource}${subresource}`,
  ...inside(undefined, name),
})

/** To see which reconcilers there are, and their counts. */
export const TO_LIST_RECONCILERS = ofReconcilers('list', '')
/** Shows messages that may be of any object. */
export const TO_LIST_DEAD = ofReconcilers('list', '/dead')
export const TO_REPLAY_DEAD = ofReconcilers('update', '/dead')
/** To run, retry, park and purge keys. */
export const toChangeQueue = (reconciler: string): Action => ofReconcilers('update', '/queue', reconciler)
/** Stores the event of an object again. */
export const TO_PUBLISH = ofReconcilers('create', '/events')
