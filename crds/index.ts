export { type KnativeOptions, knativeManifests } from './knative.ts'
export { functionRbac, PROCESS_ACCOUNT, platformRbac } from './rbac.ts'
export { reconcilerCrd } from './reconciler.ts'
export { yamlOf } from './yaml.ts'
