export { functionNamed, loadFunctions } from './functions.ts'
