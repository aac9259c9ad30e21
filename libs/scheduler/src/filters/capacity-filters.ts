import { describeHostPort } from '../input/host-ports.js';
import type { IndexedNode } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import { findShortage, NO_RESOURCES, RESOURCE_FIELDS } from '../input/resources.js';
import { describeShortage } from '../input/units.js';
import type { Filter } from './filter.js';
import { describeFailure, FILTER_OF_RESOURCE } from './reasons.js';

/** Excludes nodes that hold as many replicas as they allow. */
export const maxReplicas: Filter = {
  names: ['replicas'],
  check: ({ node, replicas }) =>
    replicas >= node.maxReplicas ? { filter: 'replicas' } : undefined,
  explain: (_failure, { node, replicas }) =>
    `holds ${replicas} replicas of at most ${node.maxReplicas}`,
};

/** Excludes nodes on which less of a resource is free than the request needs. */
export const resources: Filter = {
  names: RESOURCE_FIELDS.map((field) => FILTER_OF_RESOURCE[field]),
  check: ({ node, allocated }, { request }) => {
    const resource = findShortage(request.resources, node.allocatable, allocated);
    return resource && { filter: FILTER_OF_RESOURCE[resource] };
  },
  explain: ({ filter }, { node, allocated }, { request }) =>
    RESOURCE_FIELDS.filter((field) => FILTER_OF_RESOURCE[field] === filter)
      .map((field) =>
        describeShortage(
          field,
          request.resources[field],
          Math.max(0, node.allocatable[field] - allocated[field]),
        ),
      )
      .join(),
};

/** Excludes nodes on which another replica holds a requested host port. */
export const hostPorts: Filter = {
  names: ['hostPort'],
  check: ({ heldPort }) => heldPort && { filter: 'hostPort', detail: describeHostPort(heldPort) },
  explain: (failure) => describeFailure(failure),
};

/** Returns true when the node could hold one replica if it held nothing else. */
export function fitsWhenEmpty(node: IndexedNode, request: FullRequest): boolean {
  return (
    node.maxReplicas > 0 &&
    findShortage(request.resources, node.allocatable, NO_RESOURCES) === undefined
  );
}
