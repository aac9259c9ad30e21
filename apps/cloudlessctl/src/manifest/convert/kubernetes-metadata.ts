import type { SourceMap } from './source-map.js';
import { toDnsLabel } from './words.js';

/** What every Kubernetes object has. */
export interface KubernetesMetadata {
  /** Undefined: the namespace of the command line that applies the manifest. */
  readonly namespace: string | undefined;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Must be finished by the caller. */
  readonly annotations: SourceMap;
}

/** Takes `metadata` of an object whose name becomes a DNS label. */
export function takeMetadata(object: SourceMap, fallbackName: string): KubernetesMetadata {
  const metadata = object.takeMap('metadata');
  const source = metadata.takeText('name') ?? fallbackName;
  const name = toDnsLabel(source);
  if (name !== source) metadata.note('name', `renamed to ${name}: names are DNS labels`);
  const namespace = metadata.takeText('namespace');
  const labels = metadata.takeMap('labels').takePairs();
  const annotations = metadata.takeMap('annotations');
  metadata.ignore('creationTimestamp', 'uid', 'resourceVersion', 'generation', 'managedFields');
  metadata.finish();
  return { namespace, name, labels, annotations };
}
