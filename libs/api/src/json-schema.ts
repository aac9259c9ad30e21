/** The parts of JSON Schema (draft 7) that the schema of a manifest uses. */
export interface JsonSchema {
  /** Markdown in one paragraph. */
  readonly description?: string;
  /** `#/definitions/<name>`. */
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  /** The only value. */
  readonly const?: string;
  readonly enum?: readonly string[];
  /** Description of each value of `enum`, in the same order. */
  readonly enumDescriptions?: readonly string[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  /** False, or the schema of the values of a map. */
  readonly additionalProperties?: JsonSchema | false;
  /** Schema of the items of a list. */
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly not?: JsonSchema;
  readonly patternProperties?: Readonly<Record<string, JsonSchema>>;
  readonly propertyNames?: JsonSchema;
  readonly pattern?: string;
  readonly format?: 'date-time';
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly required?: readonly string[];
  /** A text with a unit that is accepted beside, or in place of, a number. */
  readonly 'x-unit'?: 'duration' | 'cpu' | 'bytes' | 'mode';
}

/** A schema with the named schemas that `$ref` refers to. */
export interface RootSchema extends JsonSchema {
  readonly $schema: string;
  readonly title: string;
  readonly definitions: Readonly<Record<string, JsonSchema>>;
}
