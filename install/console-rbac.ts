import type { KubeObject } from '#contracts'
import { RECONCILERS, SYSTEM_NAMESPACE } from '#spec'
import { AGGREGATE } from './rbac.ts'
import {
  aggregated,
  clusterBinding,
  clusterRole,
  inSystemNamespace,
  type Rule,
  serviceAccount,
} from './rbac-objects.ts'

const CONSOLE = 'fairlead-console'
const TO_CONSOLE = { [AGGREGATE.console]: 'true' }

const ofReconcilers = (verbs: string[], ...subresources: string[]): Rule => ({
  apiGroups: [RECONCILERS.group],
  resources: subresources.map((subresource) => RECONCILERS.resource + subresource),
  verbs,
})

/**
 * Returns the account of the console and its RBAC: to review the tokens and permissions of users, and to read the facts
 * that explain an object. Each function adds the kinds that the console reads, by aggregation.
 */
export function consoleRbac(): KubeObject[] {
  return [
    serviceAccount(CONSOLE, SYSTEM_NAMESPACE),
    clusterRole(
      `${CONSOLE}-own`,
      [
        { apiGroups: ['authentication.k8s.io'], resources: ['tokenreviews'], verbs: ['create'] },
        { apiGroups: ['authorization.k8s.io'], resources: ['subjectaccessreviews'], verbs: ['create'] },
        ofReconcilers(['get', 'list'], ''),
        { apiGroups: [''], resources: ['namespaces'], verbs: ['get'] },
        { apiGroups: [''], resources: ['events'], verbs: ['list'] },
      ],
      TO_CONSOLE,
    ),
    aggregated(CONSOLE, AGGREGATE.console),
    clusterBinding(CONSOLE, [inSystemNamespace(CONSOLE)]),
    // These two roles are for users. An administrator binds them.
    clusterRole(`${CONSOLE}-reader`, [ofReconcilers(['get', 'list'], ''), ofReconcilers(['list'], '/dead')]),
    clusterRole(`${CONSOLE}-operator`, [ofReconcilers(['update'], '/queue', '/dead')]),
  ]
}

/** Returns the additional RBAC of a console that allows writes: to record each write in an Event. */
export const consoleWritesRbac = (): KubeObject[] => [
  clusterRole(
    `${CONSOLE}-events`,
    [{ apiGroups: ['events.k8s.io'], resources: ['events'], verbs: ['create', 'get', 'patch'] }],
    TO_CONSOLE,
  ),
]
