import { Job, type ObservedBy } from '#sdk'
import { credentialsEnv } from './database.ts'
import { DATABASE, env, MYSQL_PORT, namesOf } from './parts.ts'
import type { VisitorsObject } from './resource.ts'

type JobObject = ObservedBy<typeof Job>

/** Returns the Job that runs before the app is deleted. Undefined: the spec has none. */
export function cleanUpFor(object: VisitorsObject): JobObject | undefined {
  const { cleanUp } = object.spec
  if (cleanUp === undefined) return undefined
  const { cleanUp: name, mysqlService } = namesOf(object)
  const { username, password } = credentialsEnv(object)
  return Job.of({
    metadata: { name },
    spec: {
      backoffLimit: 2,
      activeDeadlineSeconds: cleanUp.timeoutSeconds,
      template: {
        spec: {
          restartPolicy: 'Never',
          enableServiceLinks: false,
          containers: [
            {
              name: 'clean-up',
              image: cleanUp.image,
              command: cleanUp.command,
              env: [
                ...env({
                  MYSQL_DATABASE: DATABASE,
                  MYSQL_SERVICE_HOST: mysqlService,
                  MYSQL_SERVICE_PORT: String(MYSQL_PORT),
                }),
                { name: 'MYSQL_USERNAME', ...username },
                { name: 'MYSQL_PASSWORD', ...password },
              ],
            },
          ],
        },
      },
    },
  })
}

/** Returns how a Job has ended, if it has. */
export function endOf(job: JobObject | undefined): { isOver: boolean; failure?: string } {
  const ended = job?.status?.conditions?.find(
    ({ type, status }) => status === 'True' && (type === 'Complete' || type === 'Failed'),
  )
  if (ended === undefined) return { isOver: false }
  return ended.type === 'Complete' ? { isOver: true } : { isOver: true, failure: ended.message ?? ended.reason ?? '' }
}
