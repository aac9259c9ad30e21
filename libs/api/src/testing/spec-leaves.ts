import { create, ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { WorkloadSpecSchema, type WorkloadSpec } from '../gen.js';

/** A scalar field of a spec. */
export interface SpecLeaf {
  /** Path below `spec`, in proto spelling, without list indexes: `volumes.named.name`. */
  readonly path: string;
  /**
   * A spec in which only this field, and the messages that contain it, are set. The value is not
   * the default.
   */
  readonly spec: WorkloadSpec;
}

/**
 * Returns every scalar field of a spec. The list is derived from the descriptor, so a test over all
 * leaves includes fields that are added later.
 */
export function listSpecLeaves(): readonly SpecLeaf[] {
  return listLeaves(WorkloadSpecSchema, '', (init) => init);
}

/** @param wrap - Puts an init of `schema` into an init of the whole spec. */
function listLeaves(
  schema: DescMessage,
  prefix: string,
  wrap: (init: object) => object,
): SpecLeaf[] {
  return schema.fields.flatMap((field): SpecLeaf[] => {
    const path = `${prefix}${field.name}`;
    const put = (value: unknown): object =>
      wrap(
        field.oneof === undefined
          ? { [field.localName]: value }
          : { [field.oneof.localName]: { case: field.localName, value } },
      );
    const list = (value: unknown): unknown => (field.fieldKind === 'list' ? [value] : value);
    if (field.message?.typeName.startsWith('cloudless.') && field.message.fields.length > 0) {
      return listLeaves(field.message, `${path}.`, (init) => put(list(init)));
    }
    return [{ path, spec: create(WorkloadSpecSchema, put(createValue(field))) }];
  });
}

function createValue(field: DescField): unknown {
  if (field.fieldKind === 'map')
    return { key: field.mapKind === 'scalar' ? SAMPLES[field.scalar] : 'value' };
  const value = field.message?.typeName.startsWith('cloudless.')
    ? {} // a message without fields, whose presence is a value
    : field.message !== undefined
      ? durationFromMs(7_000)
      : field.enum !== undefined
        ? 1
        : createScalar(field);
  return field.fieldKind === 'list' ? [value] : value;
}

/** Sample values by scalar type, each different from the default of every field of that type. */
const SAMPLES: Readonly<Record<number, unknown>> = {
  [ScalarType.INT64]: 5n,
  [ScalarType.INT32]: 5,
  [ScalarType.BOOL]: true,
  [ScalarType.STRING]: 'text',
};
/** A priority that `checkSupported` rejects: the field is built only in part. */
const UNSUPPORTED_PRIORITY = 500;

function createScalar({ proto, name }: DescField): unknown {
  if (!(proto.type in SAMPLES))
    throw new Error(`no sample value for the type of ${name}: add one to SAMPLES`);
  return name === 'priority' ? UNSUPPORTED_PRIORITY : SAMPLES[proto.type];
}
