import { resource, z } from 'fairlead'

const name = z.string().min(1).max(253)

/** A namespace for a team, with its limits, for as long as the team needs it. */
export const Workspace = resource({
  group: 'tenancy.example.com',
  version: 'v1alpha1',
  kind: 'Workspace',
  plural: 'workspaces',
  scope: 'Cluster',
  shortNames: ['ws'],
  spec: z.object({
    admins: z.string().min(1).describe('The group whose members administer the namespace.'),
    quota: z.record(z.string(), z.string()).default({ pods: '20' }).describe('The hard limits of the ResourceQuota.'),
    template: z.object({ namespace: name, name }).describe('The ConfigMap from which the settings are rendered.'),
    expiresAfterSeconds: z.int32().min(1).optional().describe('Counted from the creation. Left out: never.'),
    onExpiry: z
      .enum(['Delete', 'Archive'])
      .default('Delete')
      .describe('Delete: the workspace is deleted. Archive: it becomes read-only, and its namespace is never deleted.'),
  }),
  status: z.object({
    phase: z.enum(['Pending', 'Active', 'Archived']),
    runningPods: z.int32(),
    expiresAt: z.iso.datetime().optional(),
  }),
  columns: [
    { name: 'Phase', path: '.status.phase' },
    { name: 'Pods', path: '.status.runningPods', type: 'integer' },
    { name: 'Expires', path: '.status.expiresAt', type: 'date' },
  ],
})
