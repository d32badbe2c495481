import {
  ConfigMap,
  Deployment,
  Job,
  NetworkPolicy,
  type ObservedBy,
  PersistentVolumeClaim,
  Secret,
  Service,
} from 'fairlead'
import type { Tenant } from './resource.ts'

export type JobObject = ObservedBy<typeof Job>
type SecretObject = ObservedBy<typeof Secret>
type DeploymentObject = ObservedBy<typeof Deployment>

const PLANS = { small: { storage: '10Gi', replicas: 1 }, large: { storage: '100Gi', replicas: 3 } } as const
const PORTS = { db: 5432, app: 8080 } as const
type Tier = keyof typeof PORTS

export const namesOf = ({ metadata: { name } }: Tenant) => ({
  db: `${name}-db`,
  app: `${name}-app`,
  credentials: `${name}-credentials`,
  record: `${name}-record`,
  migrate: (version: string) => `${name}-migrate-${version}`,
  backup: (day: string) => `${name}-backup-${day}`,
  lastBackup: `${name}-last-backup`,
})

const labelsOf = ({ metadata: { name } }: Tenant, tier: Tier) => ({ tenant: name, tier })

/** The password is drawn once: the stored Secret stays as it is. */
export const credentialsOf = (tenant: Tenant, stored: SecretObject | undefined, draw: (name: string) => string) => {
  const { name, data } = { name: namesOf(tenant).credentials, data: stored?.data }
  if (data?.['password'] !== undefined) return Secret.of({ metadata: { name }, data })
  return Secret.of({ metadata: { name }, stringData: { password: draw('password') } })
}

/** What remains when the tenant has gone. A later TenantDatabase of that name takes it over. */
export const recordOf = (tenant: Tenant, lastBackup: string | undefined) => ({
  ...ConfigMap.of({ metadata: { name: namesOf(tenant).record }, data: { lastBackup: lastBackup ?? 'none' } }),
  retain: true,
})

export const volumeOf = (tenant: Tenant) =>
  PersistentVolumeClaim.of({
    metadata: { name: namesOf(tenant).db },
    spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: PLANS[tenant.spec.plan].storage } } },
  })

export const serviceOf = (tenant: Tenant, tier: Tier) =>
  Service.of({
    metadata: { name: namesOf(tenant)[tier] },
    spec: { selector: labelsOf(tenant, tier), ports: [{ port: PORTS[tier] }] },
  })

export const policiesOf = (tenant: Tenant) =>
  tenant.spec.teams.map((team) =>
    NetworkPolicy.of({
      metadata: { name: `${tenant.metadata.name}-from-${team}` },
      spec: {
        podSelector: { matchLabels: labelsOf(tenant, 'db') },
        ingress: [{ from: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': team } } }] }],
      },
    }),
  )

const passwordEnv = (tenant: Tenant) => ({
  name: 'PGPASSWORD',
  valueFrom: { secretKeyRef: { name: namesOf(tenant).credentials, key: 'password' } },
})

export const databaseOf = (tenant: Tenant): DeploymentObject =>
  deploymentOf(tenant, 'db', 1, tenant.spec.images.database, [{ name: 'data', mountPath: '/var/lib/postgresql' }])

export const applicationOf = (tenant: Tenant, version: string): DeploymentObject =>
  deploymentOf(tenant, 'app', PLANS[tenant.spec.plan].replicas, `${tenant.spec.images.application}:${version}`)

function deploymentOf(
  tenant: Tenant,
  tier: Tier,
  replicas: number,
  image: string,
  volumeMounts: { name: string; mountPath: string }[] = [],
): DeploymentObject {
  const labels = labelsOf(tenant, tier)
  const volumes = volumeMounts.map(({ name }) => ({ name, persistentVolumeClaim: { claimName: namesOf(tenant).db } }))
  const ports = [{ containerPort: PORTS[tier] }]
  return Deployment.of({
    metadata: { name: namesOf(tenant)[tier], labels },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      ...(tier === 'db' && { strategy: { type: 'Recreate' } }),
      template: {
        metadata: { labels },
        spec: { containers: [{ name: tier, image, ports, env: [passwordEnv(tenant)], volumeMounts }], volumes },
      },
    },
  })
}

/** A Job that runs a command of the tools on the database, with at most three attempts. */
export const toolOf = (tenant: Tenant, name: string, command: string[]): JobObject =>
  Job.of({
    metadata: { name },
    spec: {
      backoffLimit: 2,
      template: {
        spec: {
          restartPolicy: 'Never',
          containers: [{ name: 'tool', image: tenant.spec.images.tools, command, env: [passwordEnv(tenant)] }],
        },
      },
    },
  })

/** Undefined while the Job runs, or does not exist. */
export const endOf = (job: JobObject | undefined): 'Complete' | 'Failed' | undefined => {
  const has = (type: string) =>
    job?.status?.conditions?.some((one) => one.type === type && one.status === 'True') === true
  return has('Complete') ? 'Complete' : has('Failed') ? 'Failed' : undefined
}
