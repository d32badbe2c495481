export { namespaceDefaults } from './namespace-defaults.ts'
