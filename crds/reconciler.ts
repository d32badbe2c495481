import { z } from 'zod'
import { RECONCILERS, reconcilerSpec } from '#contracts'
import { resource } from '#sdk'

/** What bridge and dispatcher know of a function. Its status is what is kept for every resource. */
export const Reconciler = resource({
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
