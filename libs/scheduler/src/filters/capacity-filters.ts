import { customAmount, listCustomShortages, NO_CUSTOM } from '../input/custom-resources.js';
import { describeHostPort } from '../input/host-ports.js';
import type { IndexedNode } from '../input/node.js';
import type { FullRequest } from '../input/request.js';
import { findShortage, NO_RESOURCES, RESOURCE_FIELDS } from '../input/resources.js';
import type { ResourceField } from '../input/resources.js';
import {
  describeAmount,
  describeCustomAmount,
  describeExcess,
  describeShortage,
} from '../input/units.js';
import type { Filter } from './filter.js';
import { FILTER_OF_RESOURCE, type PlacementFilter } from './reasons.js';

/** Excludes nodes that hold as many replicas as they allow. */
export const maxReplicas: Filter = {
  names: ['replicas'],
  check: ({ node, replicas }) =>
    replicas >= node.maxReplicas ? { filter: 'replicas' } : undefined,
  explain: (_failure, { node, replicas }) =>
    `holds ${replicas} replicas of at most ${node.maxReplicas}`,
  summarise: () => 'holds its largest number of replicas',
  isLasting: (_failure, { node }) => node.maxReplicas === 0,
};

/** Excludes nodes on which less of a resource is free than the request needs. */
export const resources: Filter = {
  names: RESOURCE_FIELDS.map((field) => FILTER_OF_RESOURCE[field]),
  check: ({ node, allocated }, { request }) => {
    const resource = findShortage(request.resources, node.allocatable, allocated);
    return resource && { filter: FILTER_OF_RESOURCE[resource] };
  },
  listAll: ({ node, allocated }, { request }) =>
    RESOURCE_FIELDS.filter((field) => {
      const only = { ...NO_RESOURCES, [field]: request.resources[field] };
      return findShortage(only, node.allocatable, allocated) !== undefined;
    }).map((field) => ({ filter: FILTER_OF_RESOURCE[field] })),
  explain: ({ filter }, { node, allocated }, { request }) => {
    const field = toResourceField(filter);
    const [need, has] = [request.resources[field], node.allocatable[field]];
    return need > has
      ? describeExcess(field, need, has)
      : describeShortage(field, need, Math.max(0, has - allocated[field]));
  },
  summarise: ({ filter }, { node }, { request }) => {
    const field = toResourceField(filter);
    const need = request.resources[field];
    const most = need > node.allocatable[field] ? 'the node has' : 'is free';
    return `needs ${describeAmount(field, need)}, more than ${most}`;
  },
  isLasting: ({ filter }, { node }, { request }) => {
    const field = toResourceField(filter);
    return request.resources[field] > node.allocatable[field];
  },
};

/** Excludes nodes on which less of a custom resource is free than the request needs. */
export const customResources: Filter = {
  names: ['customResource'],
  check: ({ node, allocated }, { request }) => {
    const [detail] = listCustomShortages(
      request.resources.custom,
      node.allocatable.custom,
      allocated.custom,
    );
    return detail === undefined ? undefined : { filter: 'customResource', detail };
  },
  listAll: ({ node, allocated }, { request }) =>
    listCustomShortages(request.resources.custom, node.allocatable.custom, allocated.custom).map(
      (detail) => ({ filter: 'customResource', detail }),
    ),
  explain: ({ detail = '' }, { node, allocated }, { request }) => {
    const need = customAmount(request.resources.custom, detail);
    const has = customAmount(node.allocatable.custom, detail);
    const needed = `needs ${describeCustomAmount(detail, need)}`;
    if (has === 0) return `${needed}, the node has none`;
    return need > has
      ? `${needed}, the node has ${has}`
      : `${needed}, ${Math.max(0, has - customAmount(allocated.custom, detail))} free`;
  },
  summarise: ({ detail = '' }, { node }, { request }) => {
    const need = customAmount(request.resources.custom, detail);
    const most = need > customAmount(node.allocatable.custom, detail) ? 'the node has' : 'is free';
    return `needs ${describeCustomAmount(detail, need)}, more than ${most}`;
  },
  isLasting: ({ detail = '' }, { node }, { request }) =>
    customAmount(request.resources.custom, detail) > customAmount(node.allocatable.custom, detail),
};

/** Excludes nodes on which another replica holds a requested host port. */
export const hostPorts: Filter = {
  names: ['hostPort'],
  check: ({ heldPort }) => heldPort && { filter: 'hostPort', detail: describeHostPort(heldPort) },
  explain: ({ detail = '' }) => `host port ${detail} is taken`,
  summarise: ({ detail = '' }) => `host port ${detail} is taken`,
  isLasting: () => false,
};

/** Returns true when the node could hold one replica if it held nothing else. */
export function fitsWhenEmpty(node: IndexedNode, request: FullRequest): boolean {
  return (
    node.maxReplicas > 0 &&
    findShortage(request.resources, node.allocatable, NO_RESOURCES) === undefined &&
    listCustomShortages(request.resources.custom, node.allocatable.custom, NO_CUSTOM).length === 0
  );
}

/** Returns the resource whose shortage a filter reports. */
export function toResourceField(filter: PlacementFilter): ResourceField {
  return RESOURCE_FIELDS.find((field) => FILTER_OF_RESOURCE[field] === filter) ?? 'cpuMillis';
}
