import { type Credentials, credentialsEnv, credentialsMark } from './database.ts'
import {
  DATABASE,
  type DeploymentObject,
  deploymentFor,
  env,
  MYSQL_PORT,
  namesOf,
  reachable,
  type ServiceObject,
  serviceFor,
} from './parts.ts'
import type { VisitorsObject } from './resource.ts'

export const BACKEND_PORT = 8000
export const FRONTEND_PORT = 3000

/** Returns an HTTP probe. A server that checks the Host header accepts `localhost`. */
const get = (path: string, port: number) => ({
  httpGet: { path, port, httpHeaders: [{ name: 'Host', value: 'localhost' }] },
})

export function backendFor(object: VisitorsObject, credentials: Credentials): DeploymentObject {
  const { username, password } = credentialsEnv(object)
  return deploymentFor(object, {
    tier: 'backend',
    replicas: object.spec.size,
    annotations: credentialsMark(credentials),
    container: {
      name: 'visitors-service',
      image: object.spec.backend.image,
      ports: [{ name: 'visitors', containerPort: BACKEND_PORT, protocol: 'TCP' }],
      env: [
        ...env({
          MYSQL_DATABASE: DATABASE,
          MYSQL_SERVICE_HOST: namesOf(object).mysqlService,
          MYSQL_SERVICE_PORT: String(MYSQL_PORT),
        }),
        { name: 'MYSQL_USERNAME', ...username },
        { name: 'MYSQL_PASSWORD', ...password },
      ],
      // The backend has no health endpoint. The list of visits is read from the database.
      readinessProbe: { ...get('/visitors/', BACKEND_PORT), periodSeconds: 2, timeoutSeconds: 5 },
      livenessProbe: { tcpSocket: { port: 'visitors' }, initialDelaySeconds: 180 },
    },
  })
}

export const backendService = (object: VisitorsObject): ServiceObject =>
  serviceFor(
    object,
    'backend',
    namesOf(object).backendService,
    reachable(object, BACKEND_PORT, object.spec.service.backendNodePort),
  )

/** Returns the front end. Undefined: the address of the backend is not known yet. */
export function frontendFor(
  object: VisitorsObject,
  backend: ServiceObject | undefined,
  observed: DeploymentObject | undefined,
): DeploymentObject | undefined {
  const whereBackendIs = backendEnv(object, backend) ?? backendEnvIn(observed)
  if (whereBackendIs === undefined) return undefined
  return deploymentFor(object, {
    tier: 'frontend',
    replicas: 1,
    container: {
      name: 'visitors-webui',
      image: object.spec.frontend.image,
      ports: [{ name: 'visitors', containerPort: FRONTEND_PORT, protocol: 'TCP' }],
      env: [...env({ REACT_APP_TITLE: object.spec.title }), ...whereBackendIs],
      readinessProbe: { ...get('/', FRONTEND_PORT), periodSeconds: 2, timeoutSeconds: 5 },
      livenessProbe: { tcpSocket: { port: 'visitors' }, initialDelaySeconds: 60 },
    },
  })
}

type Env = ReturnType<typeof env>

/**
 * Returns the address of the backend for the browser: the host of the page with the node port, which the API server may
 * have to choose first, or the name of the backend in the cluster.
 */
function backendEnv(object: VisitorsObject, backend: ServiceObject | undefined): Env | undefined {
  const host = hostOf(object, namesOf(object).backendService)
  if (object.spec.service.type === 'ClusterIP')
    return env({ REACT_APP_BACKEND_HOST: host, REACT_APP_BACKEND_PORT: String(BACKEND_PORT) })
  const nodePort = backend?.spec?.ports?.[0]?.nodePort
  return nodePort === undefined ? undefined : env({ REACT_APP_BACKEND_PORT: String(nodePort) })
}

const backendEnvIn = (observed: DeploymentObject | undefined): Env | undefined =>
  observed?.spec?.template.spec?.containers[0]?.env?.filter(({ name }) => name.startsWith('REACT_APP_BACKEND_'))

export const frontendService = (object: VisitorsObject): ServiceObject =>
  serviceFor(
    object,
    'frontend',
    namesOf(object).frontendService,
    reachable(object, FRONTEND_PORT, object.spec.service.frontendNodePort),
  )

export const hostOf = ({ metadata }: VisitorsObject, service: string): string =>
  `${service}.${metadata.namespace ?? 'default'}`
