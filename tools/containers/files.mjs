// The configuration files of containerd, of its registries and network, and of the registry.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { cniDir } from './packages.mjs';

/** Returns the image of the container that holds the namespaces of a pod. */
export const pauseImage = (settings) => `${settings.registry}/cloudless/pause:1`;
/**
 * Returns the name of the network in the address files, in the rules of the firewall, and in
 * containerd.
 */
export const networkName = (settings) => `cloudless-${settings.bridge}`;
/** Returns the configuration file of containerd, by which its process is found again. */
export const containerdFile = (settings) => join(settings.etc, 'containerd.toml');
/** Returns the configuration file of the registry, by which its process is found again. */
export const registryFile = (settings) => join(settings.etc, 'registry.yml');

/**
 * Writes all configuration files.
 * @returns The files that existed with other content.
 */
export function writeFiles(settings) {
  const hosts = join(settings.etc, 'hosts');
  const files = {
    [containerdFile(settings)]: containerdToml(settings),
    [registryFile(settings)]: registryYml(settings),
    [join(settings.etc, 'cni', '10-cloudless.conflist')]: conflist(settings),
    [join(hosts, 'docker.io', 'hosts.toml')]: hostsToml(settings),
    [join(hosts, settings.registry, 'hosts.toml')]: hostsToml(settings),
  };
  const changed = Object.entries(files).filter(
    ([file, text]) => existsSync(file) && readFileSync(file, 'utf8') !== text,
  );
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  return changed.map(([file]) => file);
}

/**
 * Returns the configuration of containerd, with all paths below the directories of the set-up.
 * `restrict_oom_score_adj`: without CAP_SYS_RESOURCE, as in many sandboxes and CI machines, runc
 * fails with "can't get final child's PID from pipe: EOF" when containerd requests a lower score.
 */
const containerdToml = (settings) => `version = 2
root = "${settings.containerdRoot}"
state = "${settings.stateDir}"

[grpc]
  address = "${settings.socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "${join(settings.dir, 'opt')}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${pauseImage(settings)}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${cniDir()}"
    conf_dir = "${join(settings.etc, 'cni')}"

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "${join(settings.etc, 'hosts')}"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "${settings.runcDir}"
`;

/**
 * Returns the configuration of one registry. Short names, which belong to docker.io, come only from
 * the local registry, because tests must not reach the internet.
 */
const hostsToml = (settings) => `server = "http://${settings.registry}"

[host."http://${settings.registry}"]
  capabilities = ["pull", "resolve"]
`;

/** Returns the configuration of the network plugins. */
const conflist = (settings) =>
  `${JSON.stringify(
    {
      cniVersion: '1.0.0',
      name: networkName(settings),
      plugins: [
        {
          type: 'bridge',
          bridge: settings.bridge,
          isGateway: true,
          ipMasq: true,
          hairpinMode: true,
          ipam: {
            type: 'host-local',
            dataDir: settings.addressesDir,
            ranges: [[{ subnet: settings.subnet }]],
            routes: [{ dst: '0.0.0.0/0' }],
          },
        },
        { type: 'portmap', capabilities: { portMappings: true } },
      ],
    },
    null,
    2,
  )}\n`;

/**
 * Returns the configuration of the registry. `delete`: a test may delete an image. Unlike the
 * configuration of the Debian package, no password is needed, because the registry listens only on
 * loopback.
 */
const registryYml = (settings) => `version: 0.1
log:
  level: warn
  accesslog:
    disabled: true
storage:
  filesystem:
    rootdirectory: ${settings.registryRoot}
  delete:
    enabled: true
http:
  addr: ${settings.registry}
`;
