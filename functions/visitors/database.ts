import { createHash } from 'node:crypto'
import { type ObservedBy, PersistentVolumeClaim, Secret } from 'fairlead'
import {
  DATABASE,
  type DeploymentObject,
  deploymentFor,
  env,
  MYSQL_PORT,
  namesOf,
  type ServiceObject,
  serviceFor,
} from './parts.ts'
import type { VisitorsObject } from './resource.ts'

type SecretObject = ObservedBy<typeof Secret>
type ClaimObject = ObservedBy<typeof PersistentVolumeClaim>

const CREDENTIALS = '/etc/visitors'
const USER = 'visitors'

/** User and passwords of one app: the stored ones, or new random ones. */
export interface Credentials {
  username: string
  password: string
  rootPassword: string
}

export function credentialsIn(stored: SecretObject | undefined, draw: (name: string) => string): Credentials {
  const read = (key: string): string => Buffer.from(stored?.data?.[key] ?? '', 'base64').toString()
  const usable = (text: string): string | undefined => (/^[A-Za-z0-9]{8,64}$/.test(text) ? text : undefined)
  return {
    username: USER,
    password: usable(read('password')) ?? draw('password'),
    rootPassword: usable(read('root-password')) ?? draw('root-password'),
  }
}

/**
 * Returns the Secret of the database. The server runs `users.sql` at each start, so a password in the Secret applies
 * even if it was changed after the data were made, because the Secret was lost or edited.
 */
export function secretFor(object: VisitorsObject, { username, password, rootPassword }: Credentials): SecretObject {
  const users = `ALTER USER IF EXISTS '${username}'@'%' IDENTIFIED BY '${password}';\n`
  return Secret.of({
    metadata: { name: namesOf(object).auth },
    type: 'Opaque',
    stringData: { username, password, 'root-password': rootPassword, 'users.sql': users },
  })
}

/** Returns an annotation that differs for other credentials. It reveals nothing, because credentials are random. */
export const credentialsMark = ({ username, password }: Credentials): Record<string, string> => ({
  'visitors.example.com/credentials': createHash('sha256').update(`${username} ${password}`).digest('hex').slice(0, 16),
})

/** Returns the environment variables that read the credentials of this app's database. */
export function credentialsEnv(object: VisitorsObject) {
  const name = namesOf(object).auth
  const from = (key: string) => ({ valueFrom: { secretKeyRef: { name, key } } })
  return { username: from('username'), password: from('password'), rootPassword: from('root-password') }
}

export function databaseFor(object: VisitorsObject, credentials: Credentials, claim: boolean): DeploymentObject {
  const { auth, data } = namesOf(object)
  const { username, password, rootPassword } = credentialsEnv(object)
  const probe = { tcpSocket: { port: 'mysql' } }
  return deploymentFor(object, {
    tier: 'mysql',
    replicas: 1,
    recreate: true,
    annotations: credentialsMark(credentials),
    container: {
      name: 'visitors-mysql',
      image: object.spec.database.image,
      args: [`--init-file=${CREDENTIALS}/users.sql`],
      ports: [{ name: 'mysql', containerPort: MYSQL_PORT, protocol: 'TCP' }],
      env: [
        ...env({ MYSQL_DATABASE: DATABASE }),
        { name: 'MYSQL_ROOT_PASSWORD', ...rootPassword },
        { name: 'MYSQL_USER', ...username },
        { name: 'MYSQL_PASSWORD', ...password },
      ],
      readinessProbe: { ...probe, periodSeconds: 2 },
      livenessProbe: { ...probe, initialDelaySeconds: 60 },
      volumeMounts: [
        { name: 'credentials', mountPath: CREDENTIALS, readOnly: true },
        ...(claim ? [{ name: 'data', mountPath: '/var/lib/mysql' }] : []),
      ],
    },
    volumes: [
      { name: 'credentials', secret: { secretName: auth, items: [{ key: 'users.sql', path: 'users.sql' }] } },
      ...(claim ? [{ name: 'data', persistentVolumeClaim: { claimName: data } }] : []),
    ],
  })
}

export const databaseService = (object: VisitorsObject): ServiceObject =>
  serviceFor(object, 'mysql', namesOf(object).mysqlService, {
    clusterIP: 'None',
    ports: [{ port: MYSQL_PORT, targetPort: MYSQL_PORT, protocol: 'TCP' }],
  })

/**
 * Returns the claim. An existing claim stays as long as the app, whatever the spec requests, because it holds the
 * visits.
 */
export function claimFor(object: VisitorsObject, observed: ClaimObject | undefined): ClaimObject | undefined {
  const { storage } = object.spec.database
  if (observed !== undefined) return observed
  if (storage === undefined) return undefined
  return PersistentVolumeClaim.of({
    metadata: { name: namesOf(object).data },
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: storage.size } },
      ...(storage.storageClassName !== undefined && { storageClassName: storage.storageClassName }),
    },
  })
}
