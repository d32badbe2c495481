export { withDeclared, withInstalled } from './adapted.ts'
export { bundlePackage, olmBundle, type PackageJson } from './bundle.ts'
export { type FunctionsChart, functionsChart } from './chart/chart.ts'
export { yamlOf } from './chart/templated.ts'
export {
  checkDefinitions,
  install,
  installCertificates,
  installConversions,
  labelled,
  refuseBreaking,
} from './install.ts'
export type { Installed } from './installed-objects.ts'
export { type KnativeOptions, knativeManifests } from './knative.ts'
export { accountsFor, accountsIn, accountsOf, natsUsers, type TriggerUser, withTriggers } from './nats-users.ts'
export { functionPolicies } from './policies.ts'
export { functionRbac, PROCESS_ACCOUNT, platformRbac, teamRbac } from './rbac.ts'
export { reconcilerCrd } from './reconciler.ts'
export {
  deleteInstalled,
  type Held,
  heldBy,
  planUninstall,
  type Removal,
  uninstall,
  webhookUsers,
} from './uninstall.ts'
export { type Direction, STEPS, stepOf, takeStep } from './version-steps.ts'
export { type ResourceVersions, type VersionRow, versionsIn } from './versions.ts'
export { servedVersions, sortedDefinitions, validationFails, webhookFails } from './webhook.ts'
export { webhookObjects } from './webhook-objects.ts'
