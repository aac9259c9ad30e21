module.exports = { preset: '../../jest.preset.js', displayName: 'cgroup-stats' };
