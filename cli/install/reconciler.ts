import { z } from 'zod'
import { type CustomResourceDefinition, resource } from '#sdk'
import { LONGEST_RECONCILER_NAME, RECONCILERS, reconcilerSpec } from '#spec'

const revision = z.object({ name: z.string().min(1).max(253), at: z.iso.datetime({ offset: true }) })

/** The status without the conditions Ready and Synced. */
const status = z.object({
  revisions: z
    .array(revision)
    .max(10)
    .optional()
    .describe(
      'Revisions of the function, in the order of their first answers. After a new one every object runs again.',
    ),
  shard: z
    .string()
    .max(63)
    .optional()
    .describe('The shard whose bridges have taken up the Reconciler. Left out: the installation without a shard.'),
})

const Reconciler = resource({
  group: RECONCILERS.group,
  version: RECONCILERS.version,
  kind: 'Reconciler',
  plural: RECONCILERS.resource,
  scope: 'Cluster',
  spec: reconcilerSpec,
  status,
  // The rule is on the whole object: a rule of the spec cannot read the name.
  validations: [
    {
      rule: `self.metadata.name.size() <= ${LONGEST_RECONCILER_NAME}`,
      message: `metadata.name has ${LONGEST_RECONCILER_NAME} characters at most`,
    },
  ],
  columns: [
    { name: 'Kind', path: '.spec.for.kind' },
    { name: 'Resource', path: '.spec.for.resource', priority: 1 },
    { name: 'Group', path: '.spec.for.group', priority: 1 },
    { name: 'Ready', path: '.status.conditions[?(@.type=="Ready")].status' },
    { name: 'Synced', path: '.status.conditions[?(@.type=="Synced")].status' },
  ],
})

/** Returns the CRD of Reconcilers, in which bridges and dispatchers find the functions. */
export const reconcilerCrd = (): CustomResourceDefinition => Reconciler.crd()
