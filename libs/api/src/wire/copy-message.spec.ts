import { clone, create, fromBinary, toBinary } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { WorkloadSpecSchema } from '../index.js';
import { arbitraryMessage } from '../testing/arbitrary-message.js';
import { copyMessage } from './copy-message.js';

describe('copyMessage', () => {
  it('returns what clone of protobuf returns, of created and of decoded messages', () => {
    fc.assert(
      fc.property(arbitraryMessage(WorkloadSpecSchema), (created) => {
        const decoded = fromBinary(WorkloadSpecSchema, toBinary(WorkloadSpecSchema, created));
        for (const spec of [created, decoded])
          expect(copyMessage(spec)).toStrictEqual(clone(WorkloadSpecSchema, spec));
      }),
    );
  });

  it('shares no object with the message', () => {
    fc.assert(
      fc.property(arbitraryMessage(WorkloadSpecSchema), (spec) => {
        spec.$unknown = [{ no: 500, wireType: 0, data: Uint8Array.of(1) }];
        const objects = new Set(listObjects(spec));
        expect(listObjects(copyMessage(spec)).filter((part) => objects.has(part))).toEqual([]);
      }),
    );
  });

  it('copies a message whose objects cannot be changed', () => {
    const spec = create(WorkloadSpecSchema, { env: { A: 'b' }, rollout: { maxSurge: 2 } });
    for (const part of listObjects(spec)) Object.freeze(part);
    const copy = copyMessage(spec);
    copy.env['A'] = 'c';
    expect([copy.env['A'], spec.env['A']]).toEqual(['c', 'b']);
  });
});

/** Returns a value and all objects in it. */
function listObjects(value: unknown): readonly object[] {
  if (typeof value !== 'object' || value === null) return [];
  return ArrayBuffer.isView(value)
    ? [value]
    : [value, ...Object.values(value).flatMap(listObjects)];
}
