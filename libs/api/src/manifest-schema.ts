/** The JSON Schema of a manifest, for editors and for the documentation of fields. */
export { manifestSchema } from './gen/manifest_schema.js';
export type { JsonSchema, RootSchema } from './json-schema.js';
