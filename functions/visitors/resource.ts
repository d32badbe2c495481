import { resource, z } from 'fairlead'

const nodePort = z.int32().min(1).max(65_535).optional()
const image = (name: string) => z.string().min(1).default(name)

/** The VisitorsApp of *Kubernetes Operators*, with additional settings that its users need. */
export const VisitorsApp = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'VisitorsApp',
  plural: 'visitorsapps',
  spec: z.object({
    size: z.int32().min(1).max(1000).default(1).describe('Replicas of the backend.'),
    title: z.string().default('Visitors Dashboard').describe('Title of the page.'),
    service: z
      .object({
        type: z.enum(['ClusterIP', 'NodePort']).default('ClusterIP'),
        frontendNodePort: nodePort.describe('Left out: the API server chooses.'),
        backendNodePort: nodePort.describe('Left out: the API server chooses.'),
      })
      .prefault({})
      .describe('How the page and its backend are reached: inside of the cluster, or at every node.'),
    frontend: z.object({ image: image('jdob/visitors-webui:1.0.0') }).prefault({}),
    backend: z.object({ image: image('jdob/visitors-service:1.0.0') }).prefault({}),
    database: z
      .object({
        image: image('mysql:5.7'),
        storage: z
          .object({
            size: z
              .string()
              .regex(/^\d+(\.\d+)?([KMGTP]i?)?$/)
              .describe('A quantity, e.g. 1Gi.'),
            storageClassName: z.string().optional(),
          })
          .optional()
          .describe('A volume of its own, kept as long as the app. Left out: visits go with the database’s pod.'),
      })
      .prefault({}),
    cleanUp: z
      .object({
        image: z.string().min(1),
        command: z.array(z.string()).min(1),
        timeoutSeconds: z.int32().min(1).max(86_400).default(300),
      })
      .optional()
      .describe('Runs once, with the credentials of the database, before the app goes, e.g. to save its visits.'),
  }),
  status: z.object({
    phase: z.enum(['Database', 'Backend', 'Frontend', 'Ready']).describe('What is waited for.'),
    databaseImage: z.string().optional(),
    backendImage: z.string().optional(),
    frontendImage: z.string().optional(),
    readyReplicas: z.object({ database: z.int32(), backend: z.int32(), frontend: z.int32() }),
    endpoints: z
      .object({ frontend: z.string().optional(), backend: z.string().optional() })
      .describe('Where they are reached: a name of the cluster, or a port of every node.'),
  }),
  columns: [
    { name: 'Phase', path: '.status.phase' },
    { name: 'Backends', path: '.status.readyReplicas.backend', type: 'integer' },
    { name: 'Page', path: '.status.endpoints.frontend' },
  ],
})

export type VisitorsObject = ReturnType<typeof VisitorsApp.parse>
