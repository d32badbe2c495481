import { z } from 'zod'
import { RECONCILERS, reconcilerSpec } from '#contracts'
import { type CustomResourceDefinition, resource } from '#sdk'

/** Its status is what is kept for every resource: the conditions Ready and Synced. */
const Reconciler = resource({
  group: RECONCILERS.group,
  version: RECONCILERS.version,
  kind: 'Reconciler',
  plural: RECONCILERS.resource,
  scope: 'Cluster',
  spec: reconcilerSpec,
  status: z.object({}),
  columns: [
    { name: 'Kind', path: '.spec.for.kind' },
    { name: 'Resource', path: '.spec.for.resource', priority: 1 },
    { name: 'Group', path: '.spec.for.group', priority: 1 },
    { name: 'Ready', path: '.status.conditions[?(@.type=="Ready")].status' },
    { name: 'Synced', path: '.status.conditions[?(@.type=="Synced")].status' },
  ],
})

/** The resource type that tells bridge and dispatcher about functions. */
export const reconcilerCrd = (): CustomResourceDefinition => Reconciler.crd()
