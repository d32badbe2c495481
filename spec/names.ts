import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import type { ReconcilerSpec } from './reconciler.ts'

/**
 * Returns the name that a reconciler has in its marks, field managers and finalizers. It stays when the reconciler is
 * renamed.
 */
export const identityOf = (name: string, { identity = name }: Pick<ReconcilerSpec, 'identity'>): string => identity

/** Kubernetes limits the part of a key after the slash to 63 characters. */
const keyName = (identity: string): string => (identity.length <= 63 ? identity : hash('sha256', identity).slice(0, 63))

/** The label of the permissions of a reconciler, with its name. */
export const RECONCILER_LABEL = 'fairlead.dev/reconciler'

/** Returns the label of the permissions of a reconciler. */
export const reconcilerLabel = (name: string): Record<string, string> => ({ [RECONCILER_LABEL]: keyName(name) })

const FINALIZERS = 'fairlead.dev/'

/** Returns the finalizer of a reconciler that has `finalize`. */
export const finalizerOf = (identity: string): string => `${FINALIZERS}${keyName(identity)}`

/** Returns the finalizer of a Reconciler object, also if its specification is refused. */
export const finalizerOfReconciler = ({ metadata: { name }, ...object }: KubeObject): string =>
  finalizerOf(identityOf(name, object['spec'] ?? {}))

/** Returns the finalizers of reconcilers that an object has. */
export const reconcilerFinalizers = ({ metadata }: KubeObject): string[] =>
  (metadata.finalizers ?? []).filter((finalizer) => finalizer.startsWith(FINALIZERS))

/** The prefix of the names that metadataManagerOf() returns. */
export const METADATA_MANAGERS = 'metadata.fairlead.dev/'

/**
 * Returns the field manager of the labels and annotations that a reconciler keeps on its objects. The annotation with
 * their fingerprint has the same name.
 */
export const metadataManagerOf = (identity: string): string => `${METADATA_MANAGERS}${keyName(identity)}`

/** The prefix of the names that contestAnnotationOf() returns. */
export const CONTESTS = 'contested.fairlead.dev/'

/**
 * Returns the annotation that names the other managers that change the labels and annotations that a reconciler keeps
 * on its objects.
 */
export const contestAnnotationOf = (identity: string): string => `${CONTESTS}${keyName(identity)}`

/** Whether the object, once it is deleted, waits for this reconciler. */
export const holdsFinalizer = ({ metadata }: KubeObject, identity: string): boolean =>
  (metadata.finalizers ?? []).includes(finalizerOf(identity))

export const finalizersWithout = ({ finalizers = [] }: KubeObject['metadata'], identity: string): string[] =>
  finalizers.filter((finalizer) => finalizer !== finalizerOf(identity))
