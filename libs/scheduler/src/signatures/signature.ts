import { toWorkloadId } from '@cloudless/base';
import type { FullRequest } from '../input/request.js';

/** Text of an empty list. */
const NONE = '';

/**
 * Returns a text that is equal only for requests with equal feasibility and ranking on every node.
 * Requests that differ in the order of a list may differ in the text.
 */
export function toSignature(
  request: FullRequest,
  ofClass: string = toClassSignature(request),
  ofLabels: string = toLabelSignature(request),
): string {
  const { workloadId, namespace, labels, spread, resources } = request;
  const { workloadAffinity, workloadAntiAffinity, hostPorts } = request;
  return JSON.stringify([
    workloadId,
    namespace,
    labels,
    resources.cpuMillis,
    resources.memoryBytes,
    resources.storageBytes,
    resources.bandwidthBps,
    resources.gpus,
    toText(Object.entries(resources.custom)),
    spread === undefined ? NONE : [spread.topology, spread.mode, spread.maxSkew],
    toText(workloadAffinity),
    toText(workloadAntiAffinity),
    toText(hostPorts),
    ofClass,
    ofLabels,
  ]);
}

/**
 * Returns a request without what depends on other replicas: the workload and its workload terms.
 * Requests whose results have equal signatures have equal scores on every node, as long as no
 * workload term decides anything.
 */
export function withoutWorkload(request: FullRequest): FullRequest {
  return {
    ...request,
    workloadId: toWorkloadId('any'),
    namespace: '',
    labels: {},
    workloadAffinity: [],
    workloadAntiAffinity: [],
  };
}

/** The part of a signature that decides the filters and scores of a class of nodes. */
export function toClassSignature(request: FullRequest): string {
  const { regions, zones, locality, capabilities, tolerations } = request;
  return regions.length + zones.length + capabilities.length + tolerations.length === 0
    ? NONE
    : JSON.stringify([regions, zones, locality, capabilities, tolerations]);
}

/** The part of a signature that decides what the labels of a node allow and prefer. */
export function toLabelSignature(request: FullRequest): string {
  const { nodeSelector, nodeAffinity, nodeAntiAffinity } = request;
  const hasSelector = Object.keys(nodeSelector).length > 0;
  return !hasSelector && nodeAffinity.length + nodeAntiAffinity.length === 0
    ? NONE
    : JSON.stringify([nodeSelector, nodeAffinity, nodeAntiAffinity]);
}

function toText(list: readonly unknown[]): string | readonly unknown[] {
  return list.length === 0 ? NONE : list;
}
