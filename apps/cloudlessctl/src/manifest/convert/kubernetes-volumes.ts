import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';
import { toDnsLabel } from './words.js';

const SOURCE_REASONS: Readonly<Record<string, string>> = {
  configMap: 'put the files into the image, or the values into env',
  secret: 'secrets are not supported yet',
  projected: 'put the files into the image',
};

/**
 * Converts the mounts of a container together with the volumes of its pod.
 * @param volumes - The list `volumes` of the pod.
 */
export function convertPodVolumes(
  container: SourceMap,
  volumes: readonly SourceMap[],
): readonly Record<string, unknown>[] {
  const sources = new Map(
    volumes.map((volume) => [volume.takeText('name') ?? '', convertSource(volume)]),
  );
  return container.takeMaps('volumeMounts').flatMap((mount) => {
    const name = mount.takeText('name') ?? '';
    const mountPath = mount.takeText('mountPath');
    const readOnly = mount.takeFlag('readOnly');
    mount.finish();
    const source = sources.get(name);
    if (source === undefined) {
      mount.report(mount.path, `left out: the volume ${name} was not converted`);
      return [];
    }
    return [{ ...withoutEmpty({ name, mountPath, readOnly }), ...source }];
  });
}

/** Returns the source of a volume; undefined when it has no equivalent, which is reported. */
function convertSource(volume: SourceMap): Record<string, unknown> | undefined {
  let source: Record<string, unknown> | undefined;
  if (volume.keys.includes('emptyDir')) {
    const directory = volume.takeMap('emptyDir');
    const medium = directory.takeText('medium') === 'Memory' ? 'MEMORY' : undefined;
    const sizeLimitBytes = directory.takeText('sizeLimit');
    if (sizeLimitBytes !== undefined && medium === undefined)
      directory.note('sizeLimit', 'left out: only directories in memory have a limit');
    source = {
      emptyDir: withoutEmpty({
        medium,
        sizeLimitBytes: medium === undefined ? undefined : sizeLimitBytes,
      }),
    };
    directory.finish();
  } else if (volume.keys.includes('hostPath')) {
    const host = volume.takeMap('hostPath');
    source = { hostPath: { path: host.takeText('path') } };
    host.ignore('type');
    host.report(host.path, 'the agents of the nodes must allow the path (--allow-host-path)');
    host.finish();
  } else if (volume.keys.includes('persistentVolumeClaim')) {
    const claim = volume.takeMap('persistentVolumeClaim');
    const name = toDnsLabel(claim.takeText('claimName') ?? '');
    claim.ignore('readOnly');
    claim.report(
      claim.path,
      `became the named volume ${name}, which each node keeps on its own disk`,
    );
    source = { named: { name } };
  }
  volume.finish(SOURCE_REASONS);
  return source;
}
