import { create, type DescField, type DescMessage } from '@bufbuild/protobuf';
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
 * Returns every scalar field of a spec, derived from the descriptor, so that a test over them
 * includes fields that are added later.
 */
export function listSpecLeaves(): readonly SpecLeaf[] {
  return listLeaves(WorkloadSpecSchema, '', (init) => init);
}

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
  if (field.fieldKind === 'map') return { key: 'value' };
  const value =
    field.message !== undefined
      ? durationFromMs(7_000)
      : field.enum !== undefined
        ? 1
        : createScalar(field);
  return field.fieldKind === 'list' ? [value] : value;
}

function createScalar({ proto, name }: DescField): unknown {
  const samples: Record<number, unknown> = {
    3: 5n,
    5: name === 'priority' ? 500 : 5,
    8: true,
    9: 'text',
  };
  if (!(proto.type in samples)) throw new Error(`no sample for ${name}: say here what one is`);
  return samples[proto.type];
}
