import { named, resource, unique, z } from 'fairlead'

const image = (name: string) => z.string().min(1).default(name)

/** A database of one tenant, with the application that uses it, and a backup every day. */
export const TenantDatabase = resource({
  group: 'tenancy.example.com',
  version: 'v1alpha1',
  kind: 'TenantDatabase',
  plural: 'tenantdatabases',
  shortNames: ['tdb'],
  spec: z.object({
    plan: z.enum(['small', 'large']).default('small').describe('Size of the volume, and replicas of the application.'),
    teams: z.array(z.string().min(1).max(63)).max(10).default([]).describe('Namespaces that reach the database.'),
    version: z
      .string()
      .regex(/^[0-9]+(-[0-9]+)*$/)
      .default('1')
      .describe('Version of the application, and of the tables that it needs.'),
    backupHour: z.int32().min(0).max(23).default(2).describe('The hour of the daily backup, in UTC.'),
    images: z
      .object({
        database: image('postgres:18'),
        application: image('registry.example.com/application'),
        tools: image('registry.example.com/tools'),
      })
      .prefault({}),
  }),
  status: z.object({
    phase: z.enum(['Provisioning', 'Migrating', 'Starting', 'Running', 'Failed', 'Deleting']),
    migratedTo: z.string().optional().describe('The version of the tables.'),
    lastBackup: z.string().optional().describe('The day of the last complete backup, such as 20300101.'),
    nextBackup: z.iso.datetime().optional(),
  }),
  rules: [
    named(/^[a-z]([-a-z0-9]{0,29}[a-z0-9])?$/, { message: 'it is the name of a Service' }),
    unique('.spec.teams'),
  ],
  columns: [
    { name: 'Phase', path: '.status.phase' },
    { name: 'Plan', path: '.spec.plan' },
    { name: 'Backup', path: '.status.lastBackup' },
  ],
})

export type Tenant = ReturnType<typeof TenantDatabase.parse>
