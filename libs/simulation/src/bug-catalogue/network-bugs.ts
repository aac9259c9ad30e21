import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { NetworkUpdateSchema, type NetworkUpdate } from '@cloudless/api';
import { ServiceAddressRecordSchema } from '@cloudless/api/store';
import type { ClusterState } from '@cloudless/cluster-state';
import type { Controllers } from '@cloudless/controllers';
import { overrideView } from './controller-bugs.js';
import type { KnownBug } from './known-bug.js';

const WORLD: KnownBug['plan'] = {
  nodes: 4,
  users: 3,
  turmoilMs: 14_000,
  pauseMs: [200, 900],
  weights: {},
  drift: false,
  services: true,
};

/** Bugs in services and network proxies. */
export const NETWORK_BUGS: readonly KnownBug[] = [
  {
    name: 'connections refused in every rolling update because stops did not wait for the proxies',
    story:
      'A container was ended as soon as its endpoint was removed from the list. Proxies learned of the removal later and opened connections to the ended container meanwhile.',
    injection: 'stop orders do not ask agents to wait until proxies have applied the removal',
    inject: () => ({ controllers: neverWaitForProxies }),
    plan: WORLD,
    checker: 'checks/stopped-endpoints.ts',
    expectedViolation: /^the proxy of node-\d+ still chooses \S+, whose stop was confirmed/,
    seed: 9,
  },
  {
    name: 'connections to ended containers because a proxy confirmed what was not in effect',
    story:
      'A proxy confirmed a list of endpoints before the list was in effect: the rules of the kernel were written seconds later, and connections went to ended containers.',
    injection: 'proxies confirm that an endpoint leaves, and choose the endpoint until its removal',
    inject: () => ({ proxyUpdate: () => withoutLeaving }),
    plan: WORLD,
    checker: 'checks/stopped-endpoints.ts',
    expectedViolation: /^the proxy of node-\d+ still chooses \S+, whose stop was confirmed/,
    seed: 1,
  },
  {
    name: 'names of deleted services that were answered until the DNS server restarted',
    story:
      'A DNS server missed the deletion of a service and went on to answer its name with the old address.',
    injection: 'proxies apply no removal of a service',
    inject: () => ({
      proxyUpdate: () => (update) =>
        create(NetworkUpdateSchema, { ...update, removedServices: [] }),
    }),
    plan: WORLD,
    checker: 'checks/network-convergence.ts',
    expectedViolation: /^for 5 s without a fault the proxy of node-\d+ knows service \S+, which/,
    seed: 3,
  },
  {
    name: 'clients that reached another service because the address of a deleted one was free at once',
    story:
      'The address of a deleted service was assigned to the next service, while clients and caches still used the address for the deleted one.',
    injection: 'the API takes the address of a deleted service for one whose hold time is over',
    inject: () => ({
      state: (state, reader) => (reader === 'api' ? forgetHoldTimes(state) : state),
    }),
    plan: WORLD,
    checker: 'checks/service-checkers.ts',
    expectedViolation: /^service \S+ got address \S+ \d+ s after service \S+ was deleted/,
    seed: 6,
  },
];

function neverWaitForProxies(controllers: Controllers): Controllers {
  controllers.network.hasEndpoint = () => false;
  return controllers;
}

function withoutLeaving(update: NetworkUpdate): NetworkUpdate {
  const endpoints = update.endpoints.filter(({ leaving }) => !leaving);
  return create(NetworkUpdateSchema, { ...update, endpoints });
}

function forgetHoldTimes(state: ClusterState): ClusterState {
  return overrideView(state, (view) => ({
    serviceAddress: (address) => {
      const stored = view.serviceAddress(address);
      if (stored?.value.releasedAt === undefined) return stored;
      const releasedAt = timestampFromMs(0);
      return {
        ...stored,
        value: create(ServiceAddressRecordSchema, { ...stored.value, releasedAt }),
      };
    },
  }));
}
