import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Disconnect_Mode as Mode, WorkloadSpecSchema, type DisconnectSchema } from '@cloudless/api';
import { getSpecFields } from './spec-view.js';

/** Returns the text of the disconnect policy in `describe`. */
function describePolicy(disconnect?: MessageInitShape<typeof DisconnectSchema>): string {
  const spec = create(WorkloadSpecSchema, disconnect === undefined ? {} : { disconnect });
  return new Map(getSpecFields(spec)).get('Disconnect') ?? 'no such field';
}

describe('the disconnect policy in describe', () => {
  it.each([
    {
      name: 'shows the default times of EXCLUSIVE',
      policy: { mode: Mode.EXCLUSIVE },
      text: 'Exclusive, stop after 10s, lost after 20s',
    },
    {
      name: 'derives lost_after of EXCLUSIVE from stop_after',
      policy: { mode: Mode.EXCLUSIVE, stopAfter: durationFromMs(4_000) },
      text: 'Exclusive, stop after 4s, lost after 8s',
    },
    {
      name: 'shows no stop_after with AVAILABLE, which stops nothing',
      policy: { lostAfter: durationFromMs(90_000) },
      text: 'Available, lost after 1m30s',
    },
  ])('$name', ({ policy, text }) => {
    expect(describePolicy(policy)).toBe(text);
  });

  it('is empty when the spec has no disconnect policy', () => {
    expect(describePolicy()).toBe('');
  });
});
