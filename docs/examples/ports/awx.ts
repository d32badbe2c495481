import {
  Deployment,
  Job,
  type ObservedBy,
  reconciler,
  resource,
  Secret,
  Service,
  StatefulSet,
  stages,
  z,
} from 'fairlead'

const replicas = z.int32().min(0)
const tag = z.string().regex(/^[a-z0-9.-]{1,30}$/)

/** AWX: a PostgreSQL, then a Job that migrates its tables, then the web and task pods. */
export const AWX = resource({
  group: 'awx.ansible.com',
  version: 'v1beta1',
  kind: 'AWX',
  plural: 'awxs',
  spec: z.object({
    image: z.string().default('quay.io/ansible/awx'),
    image_version: tag.default('24.6.1'),
    postgres_image: z.string().default('quay.io/sclorg/postgresql-15-c9s'),
    postgres_configuration_secret: z.string().optional().describe('A Secret that names an external database.'),
    garbage_collect_secrets: z.boolean().default(false).describe('Whether the Secrets go with the AWX.'),
    replicas: replicas.default(1),
    web_replicas: replicas.optional(),
    task_replicas: replicas.optional(),
  }),
  status: z.object({
    version: z.string().optional().describe('The version to which the tables are migrated.'),
    adminPasswordSecret: z.string(),
  }),
  columns: [{ name: 'Version', path: '.status.version' }],
})
type Spec = ReturnType<typeof AWX.parse>['spec']
type Names = Record<string, string>

/** Variables of a container, each from a key of a Secret. */
const envFrom = (secret: string, keys: Names) =>
  Object.entries(keys).map(([name, key]) => ({ name, valueFrom: { secretKeyRef: { name: secret, key } } }))

const labelsOf = (name: string, part: string) => ({
  'app.kubernetes.io/part-of': name,
  'app.kubernetes.io/component': part,
})

function podsOf<C>(name: string, part: string, container: C) {
  const labels = labelsOf(name, part)
  return { selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers: [container] } } }
}

function databaseOf(name: string, image: string, secret: string) {
  const keys = { POSTGRESQL_DATABASE: 'database', POSTGRESQL_USER: 'username', POSTGRESQL_PASSWORD: 'password' }
  const pods = podsOf(name, 'database', { name: 'postgres', image, env: envFrom(secret, keys) })
  const claim = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '8Gi' } } }
  const volumeClaimTemplates = [{ metadata: { name: 'postgres' }, spec: claim }]
  const metadata = { name: `${name}-postgres` }
  const headless = { clusterIP: 'None', selector: labelsOf(name, 'database'), ports: [{ port: 5432 }] }
  const spec = { serviceName: metadata.name, volumeClaimTemplates, ...pods }
  return [Service.of({ metadata, spec: headless }), StatefulSet.of({ metadata, spec })]
}

/** A Secret whose values are drawn once, and stay. */
function keptAs(
  name: string,
  stored: readonly ObservedBy<typeof Secret>[],
  draw: () => Names,
  { spec }: { spec: Spec },
) {
  const data = stored.find(({ metadata }) => metadata.name === name)?.data
  const secret = data === undefined ? { stringData: draw() } : { data }
  return { ...Secret.of({ metadata: { name }, ...secret }), retain: !spec.garbage_collect_secrets }
}

export const awx = reconciler({
  name: 'awx',
  for: AWX,
  owns: [Secret, Service, StatefulSet, Job, Deployment],
  reconcile(run) {
    const { spec, status, metadata } = run.object
    const { name } = metadata
    const secretOf = (suffix: string, draw: () => Names) =>
      keptAs(`${name}-${suffix}`, run.owned(Secret), draw, run.object)
    const admin = secretOf('admin-password', () => ({ password: run.secret('admin') }))
    const key = secretOf('secret-key', () => ({ secret_key: run.secret('key') }))
    const connection = { host: `${name}-postgres`, port: '5432', database: 'awx', username: 'awx', type: 'managed' }
    const managed = secretOf('postgres-configuration', () => ({ ...connection, password: run.secret('postgres') }))
    const used = spec.postgres_configuration_secret ?? managed.metadata.name
    const keys = { HOST: 'host', PORT: 'port', NAME: 'database', USER: 'username', PASSWORD: 'password' }
    const env = [...envFrom(used, keys), ...envFrom(key.metadata.name, { SECRET_KEY: 'secret_key' })]
    const version = spec.image_version
    const container = { image: `${spec.image}:${version}`, env }
    const part = (one: string, count = spec.replicas) => {
      const pods = podsOf(name, one, { ...container, name: `awx-${one}` })
      return Deployment.of({ metadata: { name: `${name}-${one}` }, spec: { replicas: count, ...pods } })
    }
    const migrate = { ...container, name: 'migrate', command: ['awx-manage', 'migrate', '--noinput'] }
    const migration = Job.of({
      metadata: { name: `${name}-migration-${version.replaceAll('.', '-')}` },
      spec: { template: { spec: { restartPolicy: 'Never', containers: [migrate] } } },
    })
    const web = { selector: labelsOf(name, 'web'), ports: [{ port: 80, targetPort: 8052 }] }
    const database = databaseOf(name, spec.postgres_image, managed.metadata.name)
    const { apply, reached, condition } = stages(run, [
      { objects: database, isWanted: spec.postgres_configuration_secret === undefined },
      { objects: [migration], isDone: status.version === version },
      [part('web', spec.web_replicas), part('task', spec.task_replicas)],
    ])
    return {
      apply: [admin, key, managed, Service.of({ metadata: { name: `${name}-service` }, spec: web }), ...apply],
      status: { version: reached > 1 ? version : status.version, adminPasswordSecret: admin.metadata.name },
      conditions: [condition],
    }
  },
})
