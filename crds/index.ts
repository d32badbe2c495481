export { functionRbac, platformRbac } from './rbac.ts'
export { reconcilerCrd } from './reconciler.ts'
export { yamlOf } from './yaml.ts'
