import { builtins } from '#functions'
import { type CustomResourceDefinition, manifest, type ReconcilerManifest } from '#sdk'
import { Reconciler } from './reconciler.ts'

/** Every resource type that an installation serves. They must be Established before their objects are applied. */
export const customResourceDefinitions = (): CustomResourceDefinition[] =>
  [Reconciler, ...builtins.map((builtin) => builtin.for)].map((resource) => resource.crd())

/** The Reconciler of each built-in function. */
export const builtinReconcilers = (): ReconcilerManifest[] => builtins.map((builtin) => manifest(builtin))
