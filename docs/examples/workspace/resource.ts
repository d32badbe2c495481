import { named, resource, z } from 'fairlead'

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
    template: z.object({ namespace: z.string(), name: z.string() }).describe('The ConfigMap of the settings.'),
    expiresAfterSeconds: z.int32().min(1).optional().describe('Counted from the creation. Left out: never.'),
    onExpiry: z
      .enum(['Delete', 'Archive'])
      .default('Delete')
      .describe('Archive: read-only, and its namespace is kept.'),
  }),
  status: z.object({
    phase: z.enum(['Pending', 'Active', 'Archived']),
    runningPods: z.int32(),
    expiresAt: z.iso.datetime().optional(),
  }),
  validations: [
    { rule: 'self.metadata.name != self.spec.template.namespace', message: 'its template is in another namespace' },
  ],
  rules: [named(/^[a-z0-9-]{1,63}$/, { message: 'a namespace cannot have this name' })],
  columns: [
    { name: 'Phase', path: '.status.phase' },
    { name: 'Expires', path: '.status.expiresAt', type: 'date' },
  ],
})
