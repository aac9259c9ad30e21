import type { DescMethod } from '@bufbuild/protobuf';
import { getAuditPolicy } from '../audit/audit-policy.js';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { SERVED_SERVICES, getServedBy, type ServedBy } from './served-by.js';

const methods: readonly DescMethod[] = SERVED_SERVICES.flatMap(({ methods }) => methods);
const listServedBy = (...places: readonly ServedBy[]): readonly DescMethod[] =>
  methods.filter((method) => places.includes(getServedBy(method) ?? 'leader'));
const toName = ({ parent, name }: DescMethod): string => `${parent.name}/${name}`;

describe('the table of the coordinators that serve a call', () => {
  it('has a row for each RPC', () => {
    expect(methods.filter((method) => getServedBy(method) === undefined)).toEqual([]);
  });

  it('sends every call with an audit record to the leader, which alone can commit the record', () => {
    const audited = methods.filter((method) => getAuditPolicy(method) !== 'readOnly');
    const served = audited.map((method) => getServedBy(method) ?? '');
    expect(new Set(served)).toEqual(new Set(['leader', 'leaderDirectly']));
  });

  it('forwards all calls but the streams of agents and the calls of coordinators themselves', () => {
    expect(listServedBy('leaderDirectly').map(toName)).toEqual([
      'CoordinatorService/Session',
      'CoordinatorService/Tunnel',
      'IdentityService/FetchAuthorityKeys',
      'IdentityService/RecordRefusedCalls',
    ]);
  });

  it('has a handler of a follower for each read that every coordinator serves, and no others', async () => {
    const bed = await ApiTestBed.open();
    const { calls } = bed.createReadServer();
    expect([...calls.keys()].map(toName).sort()).toEqual(
      listServedBy('records', 'liveStatus').map(toName).sort(),
    );
    await bed.close();
  });

  it('has a handler of the leader for each RPC', async () => {
    const bed = await ApiTestBed.open();
    expect(methods.filter((method) => !bed.api.calls.has(method)).map(toName)).toEqual([]);
    await bed.close();
  });
});
