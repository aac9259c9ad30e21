import { create } from '@bufbuild/protobuf';
import { ServiceRecordSchema, type ServiceRecord } from '@cloudless/api/store';
import type { RecordChange } from '@cloudless/cluster-state';
import { ServiceAddressChecker } from './service-checkers.js';

const aService = (name: string, clusterIp: string, uid = name): ServiceRecord =>
  create(ServiceRecordSchema, { namespace: 'default', name, uid, clusterIp });

function aChange(
  before: ServiceRecord | undefined,
  after: ServiceRecord | undefined,
): RecordChange {
  const name = (after ?? before)?.name ?? '';
  return { kind: 'service', id: `default/${name}`, before, after } as RecordChange;
}

/** The time in seconds and the changes of a commit. */
type TimedCommit = readonly [number, ...RecordChange[]];

describe('ServiceAddressChecker', () => {
  const front = aService('front', '10.96.0.20');
  const back = aService('back', '10.96.0.20');

  /** Returns the violations of commits, each at a time in seconds. */
  const check = (commits: readonly TimedCommit[]): string[] => {
    let now = 0;
    const checker = new ServiceAddressChecker(() => now);
    return commits.flatMap(([seconds, ...changes]) => {
      now = seconds * 1_000;
      return [...checker.check(changes)];
    });
  };

  it.each<[string, TimedCommit[], string[]]>([
    [
      'two services with one address',
      [
        [0, aChange(undefined, front)],
        [1, aChange(undefined, back)],
      ],
      ['address 10.96.0.20 belongs to service front and to service back'],
    ],
    [
      'an address that is assigned again after a minute',
      [
        [0, aChange(undefined, front)],
        [10, aChange(front, undefined)],
        [70, aChange(undefined, back)],
      ],
      ['service back got address 10.96.0.20 60 s after service front was deleted'],
    ],
    [
      'an address that changes its owner in one commit',
      [
        [0, aChange(undefined, front)],
        [1, aChange(undefined, back), aChange(front, undefined)],
      ],
      ['service back got address 10.96.0.20 0 s after service front was deleted'],
    ],
    [
      'a service of the same name that was created again with the same address',
      [
        [0, aChange(undefined, front)],
        [1, aChange(front, undefined)],
        [2, aChange(undefined, aService('front', '10.96.0.20', 'other'))],
      ],
      ['service front got address 10.96.0.20 1 s after service front was deleted'],
    ],
    [
      'no address that is assigned again after an hour',
      [
        [0, aChange(undefined, front)],
        [1, aChange(front, undefined)],
        [3_601, aChange(undefined, back)],
      ],
      [],
    ],
    [
      'no change of a service that keeps its address, and no service without one',
      [
        [0, aChange(undefined, front), aChange(undefined, aService('headless', ''))],
        [1, aChange(front, aService('front', '10.96.0.20'))],
        [2, aChange(undefined, aService('other', ''))],
      ],
      [],
    ],
  ])('reports %s', (_, commits, violations) => {
    expect(check(commits)).toEqual(violations);
  });
});
