import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import type { ReconcilerSpec } from './reconciler.ts'

/** The name by which a reconciler's marks, field managers and finalizers are its own, also after it was renamed. */
export const identityOf = (name: string, { identity = name }: Pick<ReconcilerSpec, 'identity'>): string => identity

/** The part of a key after the slash has 63 characters at most. */
const keyName = (identity: string): string => (identity.length <= 63 ? identity : hash('sha256', identity).slice(0, 63))

const FINALIZERS = 'fairlead.dev/'

/** The finalizer of a reconciler that has `finalize`. */
export const finalizerOf = (identity: string): string => `${FINALIZERS}${keyName(identity)}`

/** The finalizer of a Reconciler object, also of one that is refused. */
export const finalizerOfReconciler = ({ metadata: { name }, ...object }: KubeObject): string =>
  finalizerOf(identityOf(name, object['spec'] ?? {}))

/** The finalizers of reconcilers that an object has. */
export const reconcilerFinalizers = ({ metadata }: KubeObject): string[] =>
  (metadata.finalizers ?? []).filter((finalizer) => finalizer.startsWith(FINALIZERS))

/** What the name of each of them begins with. */
export const METADATA_MANAGERS = 'metadata.fairlead.dev/'

/**
 * The field manager of the labels and annotations that a reconciler keeps on its objects, and the annotation that holds
 * the fingerprint of them.
 */
export const metadataManagerOf = (identity: string): string => `${METADATA_MANAGERS}${keyName(identity)}`

/** What the name of each of them begins with. */
export const CONTESTS = 'contested.fairlead.dev/'

/** The annotation that holds who else changes the labels and annotations that a reconciler keeps on its objects. */
export const contestAnnotationOf = (identity: string): string => `${CONTESTS}${keyName(identity)}`

/** Whether the object, once it is deleted, waits for that reconciler. */
export const holdsFinalizer = ({ metadata }: KubeObject, identity: string): boolean =>
  (metadata.finalizers ?? []).includes(finalizerOf(identity))

export const finalizersWithout = ({ finalizers = [] }: KubeObject['metadata'], identity: string): string[] =>
  finalizers.filter((finalizer) => finalizer !== finalizerOf(identity))
